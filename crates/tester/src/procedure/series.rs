//! What a time series tells: rates, clumps of loss, how even it is.

use crate::trial::{Sample, Series};

/// Frames per second of a count, and its standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Rate {
    pub(super) value: f64,
    pub(super) error: f64,
}

/// Frames lost with nothing lost before and after.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Clump {
    /// When it begins, in seconds.
    pub(super) at: f64,
    /// How long it lasts, to the interval of a sample.
    pub(super) seconds: f64,
    pub(super) frames: u64,
}

/// The slope of the sum of a count over time, by least squares, over samples that begin in `from..to` seconds.
pub(super) fn rate(series: &Series, from: f64, to: f64, of: impl Fn(&Sample) -> u64) -> Rate {
    let mut sum = 0.0;
    let mut points = Vec::new();
    for (i, sample) in series.samples.iter().enumerate() {
        let begin = i as f64 * series.interval;
        if begin >= from && begin + series.interval <= to + series.interval * 1e-6 {
            sum += of(sample) as f64;
            points.push((begin, sum));
        }
    }
    let n = points.len() as f64;
    if n < 3.0 {
        return Rate::default();
    }
    let (mx, my) = (points.iter().map(|p| p.0).sum::<f64>() / n, points.iter().map(|p| p.1).sum::<f64>() / n);
    let (mut xx, mut xy) = (0.0, 0.0);
    for (x, y) in &points {
        xx += (x - mx).powi(2);
        xy += (x - mx) * (y - my);
    }
    let value = xy / xx;
    let off: f64 = points.iter().map(|(x, y)| (y - my - value * (x - mx)).powi(2)).sum();
    Rate { value, error: (off / (n - 2.0) / xx).sqrt() }
}

/// Samples with loss that follow each other are one clump.
pub(super) fn clumps(series: &Series) -> Vec<Clump> {
    let mut found: Vec<Clump> = Vec::new();
    let mut open = false;
    for (i, sample) in series.samples.iter().enumerate() {
        match (sample.lost, open, found.last_mut()) {
            (0, ..) => open = false,
            (n, true, Some(last)) => {
                last.frames += n;
                last.seconds += series.interval;
            }
            (n, ..) => {
                let at = i as f64 * series.interval;
                found.push(Clump { at, seconds: series.interval, frames: n });
                open = true;
            }
        }
    }
    found
}

/// Mean distance of the clumps' beginnings, and its standard deviation as a share of it; `None` for fewer than four clumps.
pub(super) fn period(clumps: &[Clump]) -> Option<(f64, f64)> {
    if clumps.len() < 4 {
        return None;
    }
    let gaps: Vec<f64> = clumps.windows(2).map(|w| w[1].at - w[0].at).collect();
    let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
    let variance = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
    Some((mean, variance.sqrt() / mean))
}

/// Variance of the losses of a sample by their mean, over the samples in which frames were sent: 1 where each is lost by chance alone.
pub(super) fn dispersion(series: &Series) -> f64 {
    let lost: Vec<f64> = series.samples.iter().filter(|s| s.sent > 0).map(|s| s.lost as f64).collect();
    let n = lost.len().max(1) as f64;
    let mean = lost.iter().sum::<f64>() / n;
    let variance = lost.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n;
    if mean > 0.0 { variance / mean } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(lost: &[u64]) -> Series {
        let sample = |l: &u64| Sample { sent: 1000, received: 1000 - l, lost: *l, ..Sample::default() };
        Series { interval: 0.1, samples: lost.iter().map(sample).collect() }
    }

    #[test]
    fn clumps_and_their_period() {
        let s = series(&[0, 2, 3, 0, 0, 5, 0, 0, 0, 5, 0, 0, 0, 5]);
        let found = clumps(&s);
        assert_eq!(found.iter().map(|c| c.frames).collect::<Vec<_>>(), [5, 5, 5, 5]);
        assert!((found[0].seconds - 0.2).abs() < 1e-9);
        let (mean, variation) = period(&found).unwrap();
        assert!((mean - 0.4).abs() < 1e-9 && variation < 1e-9);
        assert_eq!(period(&found[..3]), None);
        assert!(dispersion(&s) > 2.0 && dispersion(&series(&[3; 20])) < 1e-9);
    }

    #[test]
    fn rates_are_slopes() {
        let r = rate(&series(&[1; 100]), 2.0, 10.0, |s| s.received);
        assert!((r.value - 9990.0).abs() < 1e-6 && r.error < 1e-6, "{r:?}");
        assert_eq!(rate(&series(&[1; 2]), 0.0, 1.0, |s| s.sent), Rate::default());
    }
}
