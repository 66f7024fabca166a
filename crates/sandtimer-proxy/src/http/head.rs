//! The head of a message: its bytes up to the empty line.

use tokio::io::AsyncRead;

use crate::buffered::Buffered;
use crate::http::answer::Rejection;

/// Reads and consumes a head. Fails if a line does not end with CR LF alone, is folded, or if the
/// head is too long.
pub(crate) async fn read<R: AsyncRead + Unpin>(
    reader: &mut Buffered<R>,
    max: usize,
) -> Result<Vec<u8>, Rejection> {
    let mut scanned = 0;
    loop {
        let data = reader.data();
        if let Some(end) = end(data, scanned)? {
            if end > max {
                return Err(too_long(max));
            }
            let head = data[..end].to_vec();
            reader.consume(end);
            return Ok(head);
        }
        if data.len() > max {
            return Err(too_long(max));
        }
        // A carriage return at the end has to be read again, with what follows it.
        scanned = data.len().saturating_sub(1);
        match reader.fill().await {
            Ok(1..) => {}
            _ => {
                return Err(Rejection::bad_request(
                    "The connection ended before the head did. Send the whole head.",
                ));
            }
        }
    }
}

fn too_long(max: usize) -> Rejection {
    Rejection::new(431, format!("The head has more than {max} bytes. Send shorter fields."))
}

/// Returns where the head ends. The bytes before `scanned` were read before.
fn end(data: &[u8], scanned: usize) -> Result<Option<usize>, Rejection> {
    for (at, byte) in data.iter().enumerate().skip(scanned) {
        let before = &data[..at];
        match byte {
            b'\n' if !before.ends_with(b"\r") => {
                return Err(Rejection::bad_request("A line of the head ends with LF alone. Write CR LF."));
            }
            b'\n' if before.ends_with(b"\r\n\r") => return Ok(Some(at + 1)),
            b'\r' if data.get(at + 1).is_some_and(|next| *next != b'\n') => {
                return Err(Rejection::bad_request(
                    "The head has a CR without LF. Write CR LF at the end of lines only.",
                ));
            }
            b' ' | b'\t' if before.ends_with(b"\r\n") => {
                return Err(Rejection::bad_request(
                    "A line of the head begins with a space. Write each field in one line.",
                ));
            }
            _ => {}
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read_all(parts: &[&[u8]]) -> Result<(Vec<u8>, Vec<u8>), Rejection> {
        let (client, mut server) = tokio::io::duplex(1);
        let parts: Vec<Vec<u8>> = parts.iter().map(|part| part.to_vec()).collect();
        let writer = tokio::spawn(async move {
            for part in parts {
                if tokio::io::AsyncWriteExt::write_all(&mut server, &part).await.is_err() {
                    break;
                }
            }
        });
        let mut reader = Buffered::new(client);
        let head = read(&mut reader, 64).await?;
        writer.abort();
        Ok((head, reader.data().to_vec()))
    }

    #[tokio::test]
    async fn head_arrives_byte_by_byte() {
        let head = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";
        assert_eq!(read_all(&[head]).await.unwrap().0, head);
    }

    #[tokio::test]
    async fn lines_that_parsers_disagree_about_are_refused() {
        let cases: [&[u8]; 7] = [
            b"GET / HTTP/1.1\nHost: a\n\n",
            b"GET / HTTP/1.1\r\nA: b\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\rHost: c\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\r\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\r\n c\r\n\r\n",
            b"GET / HTTP/1.1\r\nA: b\r\n\tc\r\n\r\n",
            b"GET / HTTP/1.1\r\n\r",
        ];
        for case in cases {
            assert_eq!(read_all(&[case]).await.unwrap_err().status, 400, "{}", case.escape_ascii());
        }
        assert_eq!(read_all(&[&[b'a'; 100]]).await.unwrap_err().status, 431);
    }
}
