//! A queue with a server, computed exactly between the moments at which anything changes.

/// Less than a frame: what rounding of sums may come to.
const GRAIN: f64 = 1e-3;

/// The queue of an output port and what has become of the frames so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Queue {
    /// Frames that may wait.
    buffer: f64,
    backlog: f64,
    sent: f64,
    out: f64,
    lost: f64,
    last_lost: Option<f64>,
    /// Frames that left, and how many waited before them on average.
    waits: Vec<(f64, f64)>,
}

/// What happens for a while.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    /// When it begins.
    pub(super) at: f64,
    /// Seconds.
    pub(super) seconds: f64,
    /// Frames per second that arrive.
    pub(super) arrive: f64,
    /// Share of them that never gets to the queue.
    pub(super) drop: f64,
    /// Frames per second that leave at most.
    pub(super) serve: f64,
}

impl Queue {
    /// An empty queue.
    pub(super) fn new(buffer: f64) -> Self {
        Queue { buffer, ..Queue::default() }
    }

    /// Frames that are lost at once.
    pub(super) fn lose_first(&mut self, frames: f64) {
        self.lost += frames;
        self.out -= frames;
        if frames > 0.0 {
            self.last_lost = Some(0.0);
        }
    }

    pub(super) fn pass(&mut self, p: &Piece) {
        let come = p.arrive * (1.0 - p.drop);
        let net = come - p.serve;
        self.sent += p.arrive * p.seconds;
        let mut lost = p.arrive * p.drop * p.seconds;
        let before = self.backlog;
        let left = if net > 0.0 {
            let fill = ((self.buffer - self.backlog).max(0.0) / net).min(p.seconds);
            lost += net * (p.seconds - fill);
            self.backlog = (self.backlog + net * fill).min(self.buffer);
            p.serve * p.seconds
        } else {
            let drained = (self.backlog + net * p.seconds).max(0.0);
            let left = self.backlog - drained + come * p.seconds;
            self.backlog = drained;
            left
        };
        if left > 0.0 {
            self.out += left;
            self.waits.push((left, f64::midpoint(before, self.backlog)));
        }
        let whole = (self.lost + GRAIN).floor();
        self.lost += lost;
        if (self.lost + GRAIN).floor() > whole {
            self.last_lost = Some(p.at + p.seconds);
        }
    }

    /// What still waits is given up.
    pub(super) fn close(&mut self) {
        self.lost += self.backlog;
        self.backlog = 0.0;
    }

    pub(super) fn sent(&self) -> u64 {
        (self.sent + GRAIN) as u64
    }

    pub(super) fn out(&self) -> u64 {
        (self.out + GRAIN).max(0.0) as u64
    }

    pub(super) fn lost(&self) -> u64 {
        (self.lost + GRAIN) as u64
    }

    pub(super) fn last_lost(&self) -> Option<f64> {
        self.last_lost
    }

    /// Mean of what waited before a frame, and that of these shares of the frames at most.
    pub(super) fn waited<const N: usize>(&self, shares: [f64; N]) -> (f64, [f64; N]) {
        let mut waits = self.waits.clone();
        waits.sort_by(|a, b| a.1.total_cmp(&b.1));
        let frames: f64 = waits.iter().map(|w| w.0).sum();
        let mean = waits.iter().map(|w| w.0 * w.1).sum::<f64>() / frames.max(1.0);
        let at = |share: f64| {
            let mut left = frames * share;
            for (n, wait) in &waits {
                left -= n;
                if left <= 0.0 {
                    return *wait;
                }
            }
            waits.last().map_or(0.0, |w| w.1)
        };
        (mean, shares.map(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(at: f64, seconds: f64, arrive: f64, serve: f64) -> Piece {
        Piece { at, seconds, arrive, drop: 0.0, serve }
    }

    #[test]
    fn what_came_has_left_or_is_lost_or_waits() {
        let mut q = Queue::new(100.0);
        q.pass(&piece(0.0, 1.0, 1000.0, 500.0));
        assert_eq!((q.sent(), q.out(), q.lost(), q.backlog), (1000, 500, 400, 100.0));
        q.pass(&piece(1.0, 1.0, 0.0, 60.0));
        assert_eq!((q.out(), q.backlog, q.last_lost()), (560, 40.0, Some(1.0)));
        q.pass(&piece(2.0, 1.0, 10.0, 60.0));
        assert_eq!((q.out(), q.backlog, q.lost()), (610, 0.0, 400));
        let (mean, [half, most]) = q.waited([0.5, 1.0]);
        assert!(mean > 40.0 && half <= most && most <= 100.0);
    }
}
