//! The machine that this process runs on, as far as durations depend on it. The only module of this
//! crate that reads anything.

use std::fs;
use std::sync::OnceLock;

use sandtimer_os::probe::processors;

use super::estimate::Conditions;

/// Characters of a processor's name that are kept.
const MAX_NAME_CHARACTERS: usize = 60;

impl Conditions {
    /// Returns the class of this machine, and its load of the last minute.
    pub fn here() -> Self {
        Conditions { hardware: hardware().to_owned(), load: load() }
    }
}

/// Processor model, number of processors, and accelerators.
fn hardware() -> &'static str {
    static HARDWARE: OnceLock<String> = OnceLock::new();
    HARDWARE.get_or_init(|| {
        let information = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let names = information.lines().filter(|line| line.starts_with("model name"));
        let name = names.filter_map(|line| line.split_once(": ")).map(|(_, name)| name.trim()).next();
        let name: String = name.unwrap_or(std::env::consts::ARCH).chars().take(MAX_NAME_CHARACTERS).collect();
        let accelerators = fs::read_dir("/proc/driver/nvidia/gpus").map_or(0, Iterator::count);
        format!("{name} × {}, {accelerators} accelerators", processors())
    })
}

fn load() -> Option<f64> {
    let text = fs::read_to_string("/proc/loadavg").ok()?;
    let runnable: f64 = text.split_whitespace().next()?.parse().ok()?;
    Some(runnable / processors() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_class_and_a_load() {
        let here = Conditions::here();
        assert!(here.hardware.contains(" × "), "{}", here.hardware);
        assert!(here.load.is_some_and(|load| load >= 0.0));
        assert_eq!(here.hardware, Conditions::here().hardware);
    }
}
