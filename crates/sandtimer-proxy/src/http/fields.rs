//! The fields of a head: framing of the body, and what is not forwarded.

/// Fields in one head.
pub(crate) const MAX_FIELDS: usize = 128;

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Empty,
    Length(u64),
    Chunked,
    /// With the connection; of responses only.
    UntilClose,
}

/// Fields that concern one connection, and those that are written from what was checked.
const NOT_FORWARDED: [&str; 11] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Fields that `Connection` must not name: without them a message has another meaning.
const NEVER_NAMED: [&str; 3] = ["content-length", "host", "transfer-encoding"];

/// The fields of a parsed head.
#[derive(Clone, Copy)]
pub(crate) struct HeaderFields<'a>(pub(crate) &'a [httparse::Header<'a>]);

impl<'a> HeaderFields<'a> {
    pub(crate) fn all(self, name: &str) -> impl Iterator<Item = &'a [u8]> {
        let matching = self.0.iter().filter(move |field| field.name.eq_ignore_ascii_case(name));
        matching.map(|field| field.value.trim_ascii())
    }

    /// Returns the only value of a field. Fails if there are several.
    pub(crate) fn one(self, name: &str) -> Result<Option<&'a [u8]>, String> {
        let mut values = self.all(name);
        let first = values.next();
        if values.next().is_some() {
            Err(format!("The head has several {name} fields. Send one."))
        } else {
            Ok(first)
        }
    }

    /// Returns the framing that the fields name. Fails if they name two, or one that is not known.
    pub(crate) fn framing(self) -> Result<Option<Framing>, String> {
        let length = self.one("Content-Length")?;
        match (self.one("Transfer-Encoding")?, length) {
            (Some(_), Some(_)) => {
                Err("The head has both Content-Length and Transfer-Encoding. Send one of them.".to_owned())
            }
            (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Some(Framing::Chunked)),
            (Some(coding), None) => Err(format!(
                "The transfer encoding \"{}\" is not supported. Send `chunked` alone, or a Content-Length.",
                coding.escape_ascii()
            )),
            (None, Some(length)) => {
                let digits = !length.is_empty() && length.iter().all(u8::is_ascii_digit);
                let number = std::str::from_utf8(length)
                    .ok()
                    .filter(|_| digits)
                    .and_then(|length| length.parse().ok());
                number.map(|number| Some(Framing::Length(number))).ok_or_else(|| {
                    format!(
                        "The Content-Length \"{}\" is not a number. Send decimal digits.",
                        length.escape_ascii()
                    )
                })
            }
            (None, None) => Ok(None),
        }
    }

    /// Returns the options of the connection, in lower case. Fails if they name a field that must
    /// stay.
    pub(crate) fn connection_options(self) -> Result<Vec<String>, String> {
        let values = self.all("Connection").chain(self.all("Proxy-Connection"));
        let options = values.flat_map(|value| value.split(|byte| *byte == b','));
        let options: Vec<String> = options
            .map(|option| option.trim_ascii().to_ascii_lowercase().escape_ascii().to_string())
            .collect();
        match options.iter().find(|option| NEVER_NAMED.contains(&option.as_str())) {
            Some(option) => {
                Err(format!("The Connection field names {option}, which is not about the connection."))
            }
            None => Ok(options),
        }
    }

    /// Appends what is forwarded: everything but the fields of this connection, and those that are
    /// written by the proxy.
    pub(crate) fn forward(self, connection_options: &[String], head: &mut Vec<u8>) {
        for field in self.0 {
            let name = field.name.to_ascii_lowercase();
            if NOT_FORWARDED.contains(&name.as_str()) || connection_options.contains(&name) {
                continue;
            }
            append(head, field.name, field.value);
        }
    }
}

pub(crate) fn append(head: &mut Vec<u8>, name: &str, value: &[u8]) {
    head.extend_from_slice(name.as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

pub(crate) fn append_framing(head: &mut Vec<u8>, framing: Framing) {
    match framing {
        Framing::Length(length) => append(head, "Content-Length", length.to_string().as_bytes()),
        Framing::Chunked => append(head, "Transfer-Encoding", b"chunked"),
        Framing::Empty | Framing::UntilClose => {}
    }
}
