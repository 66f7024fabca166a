//! Judge0's numbers of languages.

use crate::programs::{Language, language};

/// A language by its numbers.
#[derive(Debug)]
pub(super) struct Numbered {
    pub id: u64,
    /// The numbers of other versions of it there, for which the installed one stands.
    others: &'static [u64],
    pub language: &'static Language,
    /// What stands before its version.
    implementation: &'static str,
}

const fn numbered(
    id: u64,
    others: &'static [u64],
    language: &'static Language,
    implementation: &'static str,
) -> Numbered {
    Numbered { id, others, language, implementation }
}

static NUMBERED: [Numbered; 14] = [
    numbered(46, &[], &language::BASH, ""),
    numbered(50, &[48, 49, 103], &language::C, "GCC "),
    numbered(54, &[52, 53, 105], &language::CPP, "GCC "),
    numbered(60, &[95, 106, 107], &language::GO, ""),
    numbered(62, &[91], &language::JAVA, "OpenJDK "),
    numbered(63, &[93, 97, 102], &language::JAVASCRIPT, "Node.js "),
    numbered(64, &[], &language::LUA, ""),
    numbered(68, &[98], &language::PHP, ""),
    numbered(71, &[92, 100, 109, 113], &language::PYTHON, ""),
    numbered(72, &[], &language::RUBY, ""),
    numbered(73, &[108], &language::RUST, ""),
    numbered(74, &[94, 101], &language::TYPESCRIPT, "Node.js "),
    numbered(80, &[99], &language::R, ""),
    numbered(85, &[], &language::PERL, ""),
];

impl Numbered {
    /// Its name with a version, such as `C (GCC 12.2.0)`.
    pub fn name(&self, version: &str) -> String {
        format!("{} ({}{version})", self.language.title, self.implementation)
    }
}

/// The language of a number.
pub(super) fn find(id: u64) -> Option<&'static Numbered> {
    NUMBERED.iter().find(|known| known.id == id || known.others.contains(&id))
}

/// The number of a language.
pub(super) fn of(language: &Language) -> Option<&'static Numbered> {
    NUMBERED.iter().find(|known| known.language == language)
}
