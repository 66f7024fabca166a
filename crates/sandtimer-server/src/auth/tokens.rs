//! The file of tokens: lines of a name, a token, quotas, ceilings, whether runs may have a network
//! and whether it is an operator's, readable by the server's user alone.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use subtle::ConstantTimeEq;

use super::grant::Grant;
use super::owner::OwnerId;
use super::quota_kind::{self, Quotas};

/// More than any file of tokens has.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The admitted owners, by token.
#[derive(Clone)]
pub struct Tokens(Vec<TokenEntry>);

#[derive(Clone)]
struct TokenEntry {
    name: String,
    token: String,
    quotas: Quotas,
    grant: Grant,
}

/// Why a file of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    #[error("the token file {} cannot be read: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("the token file {} is not a regular file", .0.display())]
    NotAFile(PathBuf),
    #[error("the token file {} can be read or written by others (mode {mode:o}, uid {uid}); use chmod 600 and chown", path.display())]
    Open { path: PathBuf, mode: u32, uid: u32 },
    #[error("{}:{line}: {problem}", path.display())]
    Line { path: PathBuf, line: usize, problem: &'static str },
    #[error("the token file {} has no token in it", .0.display())]
    Empty(PathBuf),
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_list().entries(self.names()).finish()
    }
}

impl Tokens {
    /// Reads a file of lines `name token`, followed by `runs=3`, `contexts=2` and `sessions=2` if
    /// there may be only this many at once, ceilings such as `max_wall_ms=10m`, `network` where
    /// runs may have one, and `operator` where it is for the server as a whole. Empty lines and
    /// lines that begin with `#` are skipped.
    ///
    /// # Errors
    /// When it is not this user's alone, or a line is not of that form.
    pub fn read(path: &Path) -> Result<Self, TokenError> {
        let unreadable = |source| TokenError::Unreadable { path: path.to_owned(), source };
        let flags = OFlags::NONBLOCK.bits() as i32;
        let file = File::options().read(true).custom_flags(flags).open(path).map_err(unreadable)?;
        let status = file.metadata().map_err(unreadable)?;
        if !status.is_file() {
            return Err(TokenError::NotAFile(path.to_owned()));
        }
        let (mode, uid) = (status.mode() & 0o7777, status.uid());
        if mode & 0o077 != 0 || (uid != rustix::process::geteuid().as_raw() && uid != 0) {
            return Err(TokenError::Open { path: path.to_owned(), mode, uid });
        }
        let mut text = String::new();
        file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(unreadable)?;
        Self::parse(&text, path)
    }

    fn parse(text: &str, path: &Path) -> Result<Self, TokenError> {
        let mut tokens: Vec<TokenEntry> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.trim_start().starts_with('#') {
                continue;
            }
            let entry = entry(line).and_then(|entry| {
                let known = |other: &TokenEntry| other.name == entry.name || other.token == entry.token;
                if tokens.iter().any(known) { Err("the name or the token is there twice") } else { Ok(entry) }
            });
            let refused = |problem| TokenError::Line { path: path.to_owned(), line: index + 1, problem };
            tokens.push(entry.map_err(refused)?);
        }
        if tokens.is_empty() { Err(TokenError::Empty(path.to_owned())) } else { Ok(Tokens(tokens)) }
    }

    /// The names of all tokens.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|entry| entry.name.as_str())
    }

    /// How much each may have at once.
    pub(crate) fn quotas(&self) -> impl Iterator<Item = (OwnerId, &Quotas)> {
        self.0.iter().map(|entry| (OwnerId::token(&entry.name), &entry.quotas))
    }

    /// What each allows its runs.
    pub(crate) fn grants(&self) -> impl Iterator<Item = (OwnerId, &Grant)> {
        self.0.iter().map(|entry| (OwnerId::token(&entry.name), &entry.grant))
    }

    /// Whose token this is. Takes the same time for every wrong one of the same length.
    pub(crate) fn name_of(&self, given: &[u8]) -> Option<&str> {
        let mut found = None;
        for entry in &self.0 {
            if bool::from(entry.token.as_bytes().ct_eq(given)) {
                found = Some(entry.name.as_str());
            }
        }
        found
    }
}

/// All owners that are admitted.
pub(crate) fn owners(tokens: Option<&Tokens>) -> Vec<OwnerId> {
    match tokens {
        Some(tokens) => tokens.names().map(OwnerId::token).collect(),
        None => vec![OwnerId::user(rustix::process::geteuid().as_raw())],
    }
}

/// One line.
fn entry(line: &str) -> Result<TokenEntry, &'static str> {
    let mut parts = line.split_whitespace();
    let (Some(name), Some(token)) = (parts.next(), parts.next()) else {
        return Err(
            "a line is a name and a token, and words such as runs=3, max_wall_ms=10m, network or operator",
        );
    };
    let (mut quotas, mut grant) = (Quotas::new(), Grant::default());
    for part in parts {
        if grant.take(part)? {
            continue;
        }
        let quota = quota_kind::read(part);
        let (kind, most) = quota.ok_or(
            "a word is runs=N, contexts=N, sessions=N, max_wall_ms=LIMIT and the like, network or operator",
        )?;
        if let Some(most) = most
            && quotas.insert(kind, most).is_some()
        {
            return Err("a quota is there twice");
        }
    }
    Ok(TokenEntry { name: name.to_owned(), token: token.to_owned(), quotas, grant })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("tokens");
        std::fs::write(&path, "# who\n\nalice a-secret\nbob  another\n").expect("written");
        let mode =
            |mode| std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("set");
        mode(0o640);
        assert!(matches!(Tokens::read(&path), Err(TokenError::Open { mode: 0o640, .. })));
        mode(0o600);
        let tokens = Tokens::read(&path).expect("its user's alone");
        assert_eq!((tokens.name_of(b"a-secret"), tokens.name_of(b"another")), (Some("alice"), Some("bob")));
        assert_eq!((tokens.name_of(b"a-secre"), tokens.name_of(b"")), (None, None));
        assert!(!format!("{tokens:?}").contains("secret"));
        assert!(matches!(Tokens::read(directory.path()), Err(TokenError::NotAFile(_))));
    }

    #[test]
    fn lines_are_a_name_and_a_token_each_once() {
        let path = Path::new("t");
        let line = |text: &str| match Tokens::parse(text, path) {
            Err(TokenError::Line { line, .. }) => line,
            other => panic!("{other:?}"),
        };
        assert_eq!(line("a b\nc\n"), 2);
        assert_eq!(line("a b c\n"), 1);
        for wrong in [
            "a b runs",
            "a b runs=-1",
            "a b runs=1.5",
            "a b cells=1",
            "a b runs=1 runs=2",
            "a b runs=",
            "a b max_wall_ms",
            "a b max_wall_ms=",
            "a b max_wall_ms=-1",
            "a b max_wall_ms=0",
            "a b max_speed=1",
            "a b max_wall_ms=unlimited",
            "a b max_wall_ms=1s max_wall_ms=2s",
            "a b network network",
            "a b operator operator",
            "a b max_memory_bytes=x",
        ] {
            assert_eq!(line(wrong), 1, "{wrong}");
        }
        let tokens = Tokens::parse("a b runs=3 sessions=0\nc d", path).expect("tokens");
        let quotas: Vec<_> =
            tokens.quotas().map(|(owner, quotas)| (owner.as_str().to_owned(), quotas.len())).collect();
        assert_eq!(quotas, [("token:a".to_owned(), 1), ("token:c".to_owned(), 0)]);
        assert_eq!(line("a b\na d\n"), 2);
        assert_eq!(line("a b\n\nc b\n"), 3);
        assert!(matches!(Tokens::parse("# none\n", path), Err(TokenError::Empty(_))));
    }
}
