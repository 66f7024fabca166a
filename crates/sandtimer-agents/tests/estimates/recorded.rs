//! Runs of real commands, recorded once and kept: `history.csv`, made by `record.py` in the same
//! directory.

use sandtimer_agents::estimate::{Conditions, Question};

use super::evaluation::EvaluatedRun;

const HISTORY: &str = include_str!("history.csv");

/// All of them, in the order they ran in.
pub(crate) fn runs() -> Vec<EvaluatedRun> {
    let records = HISTORY.lines().filter(|line| !line.starts_with('#')).skip(1);
    let mut keys: Vec<(&str, bool)> = Vec::new();
    records
        .map(|record| {
            let fields: Vec<&str> = record.split(',').collect();
            let [name, load, milliseconds] = fields[..] else { panic!("three fields in `{record}`") };
            let load: f64 = load.parse().expect("a load");
            let key = (name, load < 1.0);
            let index = keys.iter().position(|known| *known == key).unwrap_or(keys.len());
            if index == keys.len() {
                keys.push(key);
            }
            let conditions = Conditions { hardware: "recorded".to_owned(), load: Some(load) };
            EvaluatedRun {
                key: index,
                question: Question::command(&[name]).conditions(conditions),
                seconds: milliseconds.parse::<f64>().expect("a duration") / 1000.0,
                stopped_at: None,
                idle: key.1,
            }
        })
        .collect()
}
