//! A file as a stream: what it is, its contents in pieces, and how it ended.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustix::io::{pread, retry_on_intr};
use serde_json::{Value, json};

use crate::events::{EventSource, StreamEvent};

/// Bytes of a file in one event: whole groups of base64.
const PIECE_BYTES: usize = 65_535;

/// The type that a name and the content suggest.
pub(super) fn mime_type(path: &str, is_binary: bool) -> &'static str {
    let extension = path.rsplit_once('.').map(|(_, extension)| extension.to_ascii_lowercase());
    match extension.as_deref().unwrap_or_default() {
        "json" => "application/json",
        "html" | "htm" => "text/html",
        "css" => "text/css",
        "csv" => "text/csv",
        "md" => "text/markdown",
        "js" | "mjs" => "text/javascript",
        "xml" => "application/xml",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "pdf" => "application/pdf",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        _ if is_binary => "application/octet-stream",
        _ => "text/plain",
    }
}

enum ContentState {
    Utf8 { text: String, at: usize },
    Bytes { file: Arc<OwnedFd>, at: u64, size: u64 },
    Finished,
}

/// A file in pieces.
pub(super) struct FileFrames {
    content: ContentState,
    ready: Option<Value>,
}

impl FileFrames {
    /// The frames of an open file, which is sent as text if its contents are that.
    pub fn of(path: &str, file: OwnedFd, size: u64, text: Option<String>) -> Self {
        let (is_binary, encoding) = if text.is_some() { (false, "utf-8") } else { (true, "base64") };
        let mime_type = mime_type(path, is_binary);
        let size = text.as_ref().map_or(size, |text| text.len() as u64);
        let metadata = json!({
            "type": "metadata", "mimeType": mime_type, "size": size, "isBinary": is_binary, "encoding": encoding,
        });
        let content = match text {
            Some(text) => ContentState::Utf8 { text, at: 0 },
            None => ContentState::Bytes { file: Arc::new(file), at: 0, size },
        };
        FileFrames { content, ready: Some(metadata) }
    }

    /// The one frame of a file that cannot be read.
    pub fn error(message: &str) -> Self {
        let error = json!({"type": "error", "error": message});
        FileFrames { content: ContentState::Finished, ready: Some(error) }
    }

    /// The next piece of text, or that it has ended.
    fn text(text: &str, at: &mut usize) -> Value {
        let mut end = text.len().min(*at + PIECE_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let piece = &text[*at..end];
        *at = end;
        match piece {
            "" => json!({"type": "complete", "bytesRead": text.len()}),
            piece => json!({"type": "chunk", "data": piece}),
        }
    }

    async fn bytes(file: Arc<OwnedFd>, at: &mut u64, size: u64) -> Value {
        let (begin, most) = (*at, usize::try_from(size - *at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES));
        let read = tokio::task::spawn_blocking(move || full_piece(&file, begin, most)).await;
        match read.unwrap_or_else(|panic| Err(std::io::Error::other(panic))) {
            Ok(bytes) if bytes.is_empty() => json!({"type": "complete", "bytesRead": begin}),
            Ok(bytes) => {
                *at += bytes.len() as u64;
                json!({"type": "chunk", "data": STANDARD.encode(bytes)})
            }
            Err(error) => json!({"type": "error", "error": format!("the file cannot be read: {error}")}),
        }
    }
}

/// A piece of a file that is only shorter at the file's end.
fn full_piece(file: &OwnedFd, at: u64, most: usize) -> std::io::Result<Vec<u8>> {
    let (mut bytes, mut filled) = (vec![0; most], 0);
    while filled < most {
        match retry_on_intr(|| pread(file, &mut bytes[filled..], at + filled as u64))? {
            0 => break,
            length => filled += length,
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

impl EventSource for FileFrames {
    async fn next(&mut self) -> Option<StreamEvent> {
        let data = match (self.ready.take(), &mut self.content) {
            (Some(data), _) => data,
            (None, ContentState::Utf8 { text, at }) => Self::text(text, at),
            (None, ContentState::Bytes { file, at, size }) => Self::bytes(file.clone(), at, *size).await,
            (None, ContentState::Finished) => return None,
        };
        if data["type"] == "complete" || data["type"] == "error" {
            self.content = ContentState::Finished;
        }
        Some(StreamEvent { id: String::new(), name: "", data })
    }
}
