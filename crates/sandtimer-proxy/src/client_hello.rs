//! The server name of a TLS ClientHello (RFC 8446, RFC 6066), from the first bytes of a connection.

/// The size of a ClientHello with its records. Those of today's clients have less than 2 KiB.
pub(crate) const MAX_BYTES: usize = 16 * 1024;

const HANDSHAKE_RECORD: u8 = 22;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const HOST_NAME: u8 = 0;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Hello {
    /// The message has not arrived completely.
    Incomplete,
    /// The client does not begin with a TLS handshake.
    NotTls,
    /// A ClientHello, with its server name if it has one.
    ServerName(Option<Vec<u8>>),
    /// A handshake record that does not have a ClientHello, and why not.
    Malformed(&'static str),
}

/// Inspects the first bytes of a connection. The message may be in several records, and those in
/// several segments.
pub(crate) fn inspect(data: &[u8]) -> Hello {
    match data.first() {
        None => Hello::Incomplete,
        Some(&HANDSHAKE_RECORD) => read_message(data).unwrap_or_else(|hello| hello),
        Some(_) => Hello::NotTls,
    }
}

fn malformed<T>(why: &'static str) -> Result<T, Hello> {
    Err(Hello::Malformed(why))
}

/// Joins the records' contents, and reads the message once it is complete.
fn read_message(data: &[u8]) -> Result<Hello, Hello> {
    let mut message = Vec::new();
    let mut records = data;
    loop {
        if let [kind, rest @ ..] = &message[..] {
            if *kind != CLIENT_HELLO {
                return malformed("the first TLS message is not a ClientHello");
            }
            if let [a, b, c, body @ ..] = rest {
                let length = u32::from_be_bytes([0, *a, *b, *c]) as usize;
                if length > MAX_BYTES {
                    return malformed("the ClientHello is too long");
                }
                if let Some(body) = body.get(..length) {
                    return server_name(body)
                        .map(Hello::ServerName)
                        .ok_or(Hello::Malformed("the ClientHello is damaged"))
                        .and_then(|hello| match hello {
                            Hello::ServerName(Some(name)) if name.is_empty() => {
                                malformed("the server name is empty")
                            }
                            hello => Ok(hello),
                        });
                }
            }
        }
        let [kind, major, _minor, high, low, rest @ ..] = records else { return Err(Hello::Incomplete) };
        if *kind != HANDSHAKE_RECORD || *major != 3 {
            return malformed("the first TLS record is not a handshake");
        }
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        if length == 0 || length > MAX_BYTES {
            return malformed("the length of a TLS record is out of range");
        }
        let Some((content, rest)) = rest.split_at_checked(length) else {
            // What is there of the record may already be wrong.
            if message.is_empty() && rest.first().is_some_and(|kind| *kind != CLIENT_HELLO) {
                return malformed("the first TLS message is not a ClientHello");
            }
            return Err(Hello::Incomplete);
        };
        message.extend_from_slice(content);
        records = rest;
    }
}

/// Returns the server name of a ClientHello, or `None` if its structure is not that of one.
fn server_name(body: &[u8]) -> Option<Option<Vec<u8>>> {
    let mut body = TlsFields(body);
    body.take(2 + 32)?; // version, random
    body.vector8()?; // session
    body.vector16()?; // cipher suites
    body.vector8()?; // compression
    if body.0.is_empty() {
        return Some(None);
    }
    let mut extensions = body.vector16()?;
    if !body.0.is_empty() {
        return None;
    }
    let mut found = None;
    while !extensions.0.is_empty() {
        let kind = extensions.number16()?;
        let content = extensions.vector16()?;
        if kind == SERVER_NAME {
            // A second one would let two readers disagree.
            if found.is_some() {
                return None;
            }
            found = Some(host_name(content)?);
        }
    }
    Some(found)
}

/// Reads the list of a server_name extension, which has exactly one entry, a host name.
fn host_name(mut extension: TlsFields<'_>) -> Option<Vec<u8>> {
    let mut list = extension.vector16()?;
    let kind = *list.take(1)?.first()?;
    let name = list.vector16()?;
    (kind == HOST_NAME && list.0.is_empty() && extension.0.is_empty()).then(|| name.0.to_vec())
}

/// The rest of a structure of TLS.
struct TlsFields<'a>(&'a [u8]);

impl<'a> TlsFields<'a> {
    fn take(&mut self, bytes: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn number16(&mut self) -> Option<u16> {
        self.take(2).map(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]))
    }

    fn vector8(&mut self) -> Option<TlsFields<'a>> {
        let length = usize::from(*self.take(1)?.first()?);
        self.take(length).map(TlsFields)
    }

    fn vector16(&mut self) -> Option<TlsFields<'a>> {
        let length = usize::from(self.number16()?);
        self.take(length).map(TlsFields)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use proptest::prelude::*;

    fn vector16(content: &[u8]) -> Vec<u8> {
        [&(content.len() as u16).to_be_bytes()[..], content].concat()
    }

    fn name_extension(names: &[&[u8]]) -> Vec<u8> {
        let entries: Vec<u8> =
            names.iter().flat_map(|name| [vec![HOST_NAME], vector16(name)].concat()).collect();
        [vec![0, 0], vector16(&vector16(&entries))].concat()
    }

    /// A ClientHello message with these extensions.
    fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
        let head = [&[3, 3][..], &[7; 32], &[0], &vector16(&[0x13, 0x01]), &[1, 0]].concat();
        let body = [head, vector16(&extensions.concat())].concat();
        let length = (body.len() as u32).to_be_bytes();
        [&[CLIENT_HELLO][..], &length[1..], &body].concat()
    }

    /// `message` in records of at most `size` bytes.
    fn records(message: &[u8], size: usize) -> Vec<u8> {
        message
            .chunks(size)
            .flat_map(|part| [vec![HANDSHAKE_RECORD, 3, 1], vector16(part)].concat())
            .collect()
    }

    fn named(name: &[u8]) -> Hello {
        Hello::ServerName(Some(name.to_vec()))
    }

    #[test]
    fn server_name_is_read() {
        let padding = [vec![0, 21], vector16(&[0; 40])].concat();
        let message = message(&[padding, name_extension(&[b"a.example"])]);
        assert_eq!(inspect(&records(&message, 9999)), named(b"a.example"));
    }

    #[test]
    fn message_in_many_records_is_read_as_one() {
        let message = message(&[name_extension(&[b"a.example"])]);
        for size in [1, 2, 5, 40] {
            assert_eq!(inspect(&records(&message, size)), named(b"a.example"), "{size}");
        }
    }

    #[test]
    fn every_beginning_is_incomplete() {
        let whole = records(&message(&[name_extension(&[b"a.example"])]), 30);
        for end in 0..whole.len() {
            assert_eq!(inspect(&whole[..end]), Hello::Incomplete, "{end}");
        }
        assert_eq!(inspect(&[&whole[..], b"more"].concat()), named(b"a.example"));
    }

    #[test]
    fn hello_without_a_name_has_none() {
        assert_eq!(inspect(&records(&message(&[]), 9999)), Hello::ServerName(None));
    }

    #[test]
    fn other_protocols_are_not_tls() {
        assert_eq!(inspect(b"SSH-2.0-x\r\n"), Hello::NotTls);
        assert_eq!(inspect(b"GET / HTTP/1.1\r\n"), Hello::NotTls);
    }

    #[test]
    fn ambiguous_messages_are_malformed() {
        let mut other_version = records(&message(&[]), 9999);
        other_version[1] = 2;
        let mut alert_between = records(&message(&[]), 20);
        alert_between[25] = 21;
        let mut server_hello = message(&[]);
        server_hello[0] = 2;
        let twice = message(&[name_extension(&[b"a.example"]), name_extension(&[b"b.example"])]);
        let two_names = message(&[name_extension(&[b"a.example", b"b.example"])]);
        let mut long_extension = message(&[name_extension(&[b"a.example"])]);
        let at = long_extension.len() - 16;
        long_extension[at] = 0xff;
        for data in [
            other_version,
            alert_between,
            vec![22, 3, 1, 0, 0],
            vec![22, 3, 1, 0xff, 0xff],
            records(&server_hello, 9999),
            records(&twice, 9999),
            records(&two_names, 9999),
            records(&message(&[name_extension(&[b""])]), 9999),
            records(&long_extension, 9999),
            records(&[1, 0xff, 0, 0], 9999),
        ] {
            assert!(matches!(inspect(&data), Hello::Malformed(_)), "{data:?}");
        }
    }

    proptest! {
        /// What is read first is not read otherwise when more has arrived.
        #[test]
        fn more_bytes_do_not_change_the_answer(
            at in 0..200_usize, byte: u8, size in 1..80_usize, more in prop::collection::vec(any::<u8>(), 0..40),
        ) {
            let mut data = records(&message(&[name_extension(&[b"a.example"])]), size);
            let at = at % data.len();
            data[at] = byte;
            data.extend(more);
            let answers: Vec<Hello> = (0..=data.len()).map(|end| inspect(&data[..end])).collect();
            let first = answers.iter().position(|hello| *hello != Hello::Incomplete);
            if let Some(first) = first {
                prop_assert!(answers[first..].iter().all(|hello| *hello == answers[first]), "{answers:?}");
            }
        }
    }
}
