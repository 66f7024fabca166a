//! Runs of real commands, recorded once and kept: `history.csv`, made by `record.py` beside it.

use sandtimer::task::estimate::{Conditions, Question};

use super::evaluation::Run;

const HISTORY: &str = include_str!("history.csv");

/// All of them, in the order they ran in.
pub(crate) fn runs() -> Vec<Run> {
    let rows = HISTORY.lines().filter(|line| !line.starts_with('#')).skip(1);
    let mut keys: Vec<(&str, bool)> = Vec::new();
    rows.map(|row| {
        let fields: Vec<&str> = row.split(',').collect();
        let [name, load, milliseconds] = fields[..] else { panic!("three fields in `{row}`") };
        let load: f64 = load.parse().expect("a load");
        let key = (name, load < 1.0);
        let index = keys.iter().position(|known| *known == key).unwrap_or(keys.len());
        if index == keys.len() {
            keys.push(key);
        }
        let conditions = Conditions { hardware: "recorded".to_owned(), load: Some(load) };
        Run {
            key: index,
            question: Question::command(&[name]).conditions(conditions),
            seconds: milliseconds.parse::<f64>().expect("a duration") / 1000.0,
            stopped_at: None,
            idle: key.1,
        }
    })
    .collect()
}
