//! One connection of a client: which protocol it speaks.

use tokio::time::timeout;

use crate::context::ConnectionContext;
use crate::http;
use crate::listener::ClientConnection;
use crate::socks;

const TLS_HANDSHAKE: u8 = 22;

/// Serves a client until its connection ends. The first byte decides on the protocol.
pub(crate) async fn serve(context: &ConnectionContext, mut client: ClientConnection) {
    let first = match timeout(context.bounds.head, client.reader.fill()).await {
        Ok(Ok(1..)) => client.reader.data()[0],
        Ok(_) => return,
        Err(_) => return context.reject("the client sent nothing"),
    };
    match first {
        socks::VERSION => socks::serve(context, client).await,
        socks::OLD_VERSION => socks::reject_version_4(context, client).await,
        byte if byte.is_ascii_alphabetic() => http::serve(context, client).await,
        TLS_HANDSHAKE => {
            http::reject_connection(
                context,
                client,
                "The proxy is reached without TLS. Give its address as http://, or as socks5h://.",
            )
            .await;
        }
        _ => {
            http::reject_connection(
                context,
                client,
                "The proxy serves HTTP/1.1 and SOCKS5. The first byte is of neither.",
            )
            .await;
        }
    }
}
