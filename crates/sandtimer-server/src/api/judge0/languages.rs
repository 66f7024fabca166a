//! Judge0's numbers of languages.

use crate::programs::{ProgramLanguage, language};

/// The number of a language.
#[derive(Debug)]
pub(super) struct LanguageNumber {
    pub id: u64,
    /// Judge0's numbers of other versions of it, in place of which the installed one is used.
    others: &'static [u64],
    pub language: &'static ProgramLanguage,
    /// The text before its version.
    implementation: &'static str,
}

const fn language_number(
    id: u64,
    others: &'static [u64],
    language: &'static ProgramLanguage,
    implementation: &'static str,
) -> LanguageNumber {
    LanguageNumber { id, others, language, implementation }
}

static LANGUAGE_NUMBERS: [LanguageNumber; 14] = [
    language_number(46, &[], &language::BASH, ""),
    language_number(50, &[48, 49, 103], &language::C, "GCC "),
    language_number(54, &[52, 53, 105], &language::CPP, "GCC "),
    language_number(60, &[95, 106, 107], &language::GO, ""),
    language_number(62, &[91], &language::JAVA, "OpenJDK "),
    language_number(63, &[93, 97, 102], &language::JAVASCRIPT, "Node.js "),
    language_number(64, &[], &language::LUA, ""),
    language_number(68, &[98], &language::PHP, ""),
    language_number(71, &[92, 100, 109, 113], &language::PYTHON, ""),
    language_number(72, &[], &language::RUBY, ""),
    language_number(73, &[108], &language::RUST, ""),
    language_number(74, &[94, 101], &language::TYPESCRIPT, "Node.js "),
    language_number(80, &[99], &language::R, ""),
    language_number(85, &[], &language::PERL, ""),
];

impl LanguageNumber {
    /// Its name with a version, such as `C (GCC 12.2.0)`.
    pub fn name(&self, version: &str) -> String {
        format!("{} ({}{version})", self.language.title, self.implementation)
    }
}

/// The language of a number.
pub(super) fn find(id: u64) -> Option<&'static LanguageNumber> {
    LANGUAGE_NUMBERS.iter().find(|known| known.id == id || known.others.contains(&id))
}

/// The number of a language.
pub(super) fn of(language: &ProgramLanguage) -> Option<&'static LanguageNumber> {
    LANGUAGE_NUMBERS.iter().find(|known| known.language == language)
}
