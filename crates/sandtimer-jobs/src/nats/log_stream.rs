//! The stream that is the log, and which command a message of it is.

use async_nats::jetstream::stream::{LastRawMessageErrorKind, RawMessageError, Stream};

/// The log: one stream, with one subject.
pub(super) const STREAM: &str = "sandtimer-jobs";
/// The header of a message with the id of its command.
pub(super) const ID_HEADER: &str = "Sandtimer-Command";

/// The command of a message, where that is there.
pub(super) async fn id_of(stream: &Stream, sequence: u64) -> Result<Option<String>, RawMessageError> {
    match stream.get_raw_message(sequence).await {
        Ok(message) => Ok(Some(message.headers.get(ID_HEADER).map_or("", |id| id.as_str()).to_owned())),
        Err(error) if matches!(error.kind(), LastRawMessageErrorKind::NoMessageFound) => Ok(None),
        Err(error) => Err(error),
    }
}
