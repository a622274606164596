//! The one JSON object that every benchmark, test and demo prints.

use serde::Serialize;

use crate::stats::Summary;

/// Where, how and what was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Results {
    /// What the figures were measured on.
    #[serde(serialize_with = "as_map")]
    pub host: Vec<(String, String)>,
    /// What was run and how.
    #[serde(serialize_with = "as_map")]
    pub config: Vec<(String, String)>,
    /// The figures.
    pub results: Vec<Figure>,
}

/// One figure. Ids are stable dotted names, so that a script can follow a figure over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Figure {
    /// Stable dotted name.
    pub id: String,
    /// The median.
    pub value: f64,
    /// Unit of value, min, max, best, floor and peer.
    pub unit: &'static str,
    /// Smallest of the runs.
    pub min: f64,
    /// Largest of the runs.
    pub max: f64,
    /// Value that nine tenths of the runs stay below.
    pub best: f64,
    /// How often it was measured.
    pub runs: usize,
    /// The same with nothing in between: the I/O floor's median.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub floor: Option<f64>,
    /// Median of what it is compared with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<f64>,
    /// Value as a share of the floor, or of the peer where there is no floor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// What the ratio (or the value, where there is none) has to be at least or, for costs, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub required: Option<f64>,
}

impl Figure {
    /// A figure measured several times.
    pub fn measured(id: impl Into<String>, unit: &'static str, of: &Summary) -> Self {
        Figure {
            id: id.into(),
            value: of.median,
            unit,
            min: of.min,
            max: of.max,
            best: of.best_tenth,
            runs: of.runs,
            ..Figure::default()
        }
    }

    /// A figure that is simply so.
    pub fn counted(id: impl Into<String>, unit: &'static str, value: f64) -> Self {
        Figure {
            id: id.into(),
            value,
            unit,
            min: value,
            max: value,
            best: value,
            runs: 1,
            ..Figure::default()
        }
    }

    /// The same with its I/O floor, and the ratio to it.
    pub fn over_floor(mut self, floor: f64) -> Self {
        self.floor = Some(floor);
        self.ratio = (floor > 0.0).then(|| self.value / floor);
        self
    }

    /// The same with what it has to reach.
    pub fn required(mut self, at_least: f64) -> Self {
        self.required = Some(at_least);
        self
    }
}

/// Pairs as an object, in their order.
fn as_map<S: serde::Serializer>(pairs: &[(String, String)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(pairs.iter().map(|(k, v)| (k, v)))
}

impl Results {
    /// Adds to the description of the host.
    pub fn host(&mut self, key: &str, value: impl ToString) {
        self.host.push((key.into(), value.to_string()));
    }

    /// Adds to the description of what was run.
    pub fn config(&mut self, key: &str, value: impl ToString) {
        self.config.push((key.into(), value.to_string()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_has_the_agreed_fields() {
        let mut r = Results::default();
        r.host("cpu", "x");
        r.config("sizes", 64);
        let summary = Summary::of(&[1.0, 3.0]);
        r.results.push(Figure::measured("demo.ipv4.64.rate", "Mpps", &summary).over_floor(4.0).required(0.4));
        r.results.push(Figure::counted("demo.lost", "packets", 0.0));
        assert_eq!(
            serde_json::to_value(&r).unwrap(),
            serde_json::json!({
                "host": {"cpu": "x"},
                "config": {"sizes": "64"},
                "results": [
                    {"id": "demo.ipv4.64.rate", "value": 2.0, "unit": "Mpps", "min": 1.0, "max": 3.0, "best": 2.8,
                     "runs": 2, "floor": 4.0, "ratio": 0.5, "required": 0.4},
                    {"id": "demo.lost", "value": 0.0, "unit": "packets", "min": 0.0, "max": 0.0, "best": 0.0, "runs": 1},
                ],
            })
        );
    }
}
