//! The settings that apply, each with the place that set it, as `config show` and `GET /v1/config`
//! give them.

use sandtimer::Limits;
use sandtimer::limits::Key;
use sandtimer::model::{LimitKind, Source};

use super::contexts::{POOLED, PREWARMED, STARTS};
use super::loaded::Config;
use super::names::{NAMES, Name, SHARED_NAMES, Uses};

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SettingValue {
    /// In nanoseconds, bytes or pieces; `None` for unlimited.
    Limit(Key, Option<u64>),
    Literal(Option<String>),
    Count(u64),
}

/// One setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ShownSetting {
    /// As files have it.
    pub(crate) name: String,
    /// As JSON has it.
    pub(crate) wire: String,
    pub(crate) value: SettingValue,
    pub(crate) source: Source,
    pub(crate) origin: String,
}

impl Config {
    /// Every limit as it applies to a run started here without flags, and to what a server
    /// executes.
    pub(crate) fn shown(&self) -> Vec<ShownSetting> {
        let mut settings = self.limits();
        settings.extend(self.policy());
        settings
    }

    /// The limits of runs.
    pub(crate) fn limits(&self) -> Vec<ShownSetting> {
        let to_setting = |name: &Name| ShownSetting {
            wire: name.key.wire().to_owned(),
            ..self.limit(name, Uses::Commands)
        };
        NAMES.iter().map(to_setting).collect()
    }

    /// The settings of servers besides the limits, by the names that they share with other systems.
    pub(crate) fn policy(&self) -> Vec<ShownSetting> {
        let starts = STARTS.iter().zip(self.contexts.starts()).map(|(start, set)| ShownSetting {
            name: start.file.to_owned(),
            wire: start.file.to_owned(),
            value: SettingValue::Limit(
                Key::Kind(LimitKind::Wall),
                Some(sandtimer::limits::nanoseconds(set.value)),
            ),
            source: set.source,
            origin: set.origin,
        });
        let shared = SHARED_NAMES.iter().map(|name| {
            self.limit(name, if name.uses == Uses::Everything { Uses::Commands } else { name.uses })
        });
        let mut settings: Vec<ShownSetting> = starts.chain(shared).collect();
        for language in PREWARMED {
            let to_setting = |kind: &str, value, source, origin: &str| {
                let name = format!("{kind}.{language}");
                ShownSetting { wire: name.clone(), name, value, source, origin: origin.to_owned() }
            };
            if POOLED.contains(&language) {
                let pool = self.contexts.pool(language);
                settings.push(to_setting("pool", SettingValue::Count(pool.value), pool.source, &pool.origin));
            }
            settings.push(match self.contexts.prewarm(language) {
                Some(script) => {
                    let path = script.value.display().to_string();
                    to_setting("prewarm", SettingValue::Literal(Some(path)), script.source, &script.origin)
                }
                None => to_setting("prewarm", SettingValue::Literal(None), Source::Builtin, "built in"),
            });
        }
        settings
    }

    fn limit(&self, name: &Name, uses: Uses) -> ShownSetting {
        let call = Limits::new();
        let (own, effective) = (self.own(uses, &call, true), self.effective(uses, &call, true));
        let (effect, chosen) = (effective.get(name.key), own.get(name.key));
        let source = effect.map(|effect| effect.source).or(chosen.map(|chosen| chosen.source));
        let source = source.unwrap_or(Source::Builtin);
        let origin = chosen.and_then(|chosen| chosen.origin.as_deref());
        ShownSetting {
            name: name.file.to_owned(),
            wire: name.file.to_owned(),
            value: SettingValue::Limit(name.key, effect.map(|effect| effect.value)),
            source,
            origin: self.origin(source, origin, name.key),
        }
    }
}
