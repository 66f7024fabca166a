//! stub
use crate::Shared;
use axum::Router;
pub fn document() -> serde_json::Value {
    serde_json::json!({})
}
pub(crate) fn routes() -> Router<Shared> {
    Router::new()
}
