//! Forms with files (RFC 7578), as far as an upload needs them.

use memchr::memmem;

/// One part of a form.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FormPart<'a> {
    /// Present for a file.
    pub file_name: Option<String>,
    pub content: &'a [u8],
}

/// The boundary that a content type names.
pub(super) fn boundary(content_type: &str) -> Option<String> {
    let (_, rest) = content_type.split_once("boundary=")?;
    let value = rest.split(';').next()?.trim().trim_matches('"');
    Some(value.to_owned()).filter(|value| !value.is_empty())
}

/// The parts of a form; `None` if it is not whole. Without a boundary, its first line shows it.
pub(super) fn parts<'a>(body: &'a [u8], boundary: Option<&str>) -> Option<Vec<FormPart<'a>>> {
    let first = &body[..memmem::find(body, b"\r\n")?];
    let delimiter = match boundary {
        Some(boundary) => format!("--{boundary}").into_bytes(),
        None => first.strip_prefix(b"--").filter(|rest| !rest.is_empty()).map(|_| first.to_vec())?,
    };
    let mut rest = &body[memmem::find(body, &delimiter)? + delimiter.len()..];
    let end = [b"\r\n", &delimiter[..]].concat();
    let mut parts = Vec::new();
    while !rest.starts_with(b"--") {
        rest = rest.strip_prefix(b"\r\n")?;
        let head = memmem::find(rest, b"\r\n\r\n")?;
        let content = &rest[head + 4..];
        let length = memmem::find(content, &end)?;
        let head = String::from_utf8_lossy(&rest[..head]).into_owned();
        parts.push(FormPart { file_name: file_name(&head), content: &content[..length] });
        rest = &content[length + end.len()..];
    }
    Some(parts)
}

/// The file name that the head of a part gives.
fn file_name(head: &str) -> Option<String> {
    let line = head.lines().find(|line| {
        line.get(.."content-disposition:".len())
            .is_some_and(|name| name.eq_ignore_ascii_case("content-disposition:"))
    })?;
    let (_, rest) = line.split_once("filename=")?;
    let name = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next()?,
        None => rest.split(';').next()?.trim(),
    };
    Some(name.to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORM: &[u8] = b"--xyz\r\nContent-Disposition: form-data; name=\"entity_id\"\r\n\r\na\r\n--xyz\r\n\
        content-disposition: form-data; name=\"file\"; filename=\"b c.txt\"\r\nContent-Type: text/plain\r\n\r\n1\r\n2\r\n--xyz--\r\n";

    #[test]
    fn forms_have_fields_and_files() {
        let expected = vec![
            FormPart { file_name: None, content: b"a" },
            FormPart { file_name: Some("b c.txt".to_owned()), content: b"1\r\n2" },
        ];
        assert_eq!(parts(FORM, Some("xyz")), Some(expected));
        assert_eq!(parts(FORM, None), parts(FORM, Some("xyz")));
        assert_eq!(boundary("multipart/form-data; boundary=\"xyz\"").as_deref(), Some("xyz"));
        assert_eq!(boundary("multipart/form-data"), None);
    }

    #[test]
    fn broken_forms_are_none() {
        for end in [0, 10, 60, FORM.len() - 9] {
            assert_eq!(parts(&FORM[..end], Some("xyz")), None, "{end}");
        }
        assert_eq!(parts(FORM, Some("abc")), None);
        assert_eq!(parts(b"{}", None), None);
    }
}
