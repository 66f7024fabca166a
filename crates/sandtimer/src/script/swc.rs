//! The calls of swc that make JavaScript of TypeScript.

use std::sync::{Arc, Mutex, PoisonError};

use swc_common::errors::{DiagnosticBuilder, Emitter, Handler};
use swc_common::{BytePos, SourceMap, sync::Lrc};
use swc_ecma_parser::TsSyntax;
use swc_ts_fast_strip::{Mode, Options, TransformConfig, operate};

use super::parsed::error_at;
use super::syntax_error::SyntaxError;

/// One of swc's ways to make JavaScript of TypeScript.
pub(super) fn swc(source: &str, mode: Mode) -> Result<String, SyntaxError> {
    let map: Lrc<SourceMap> = Lrc::default();
    let first = Arc::new(Mutex::new(None));
    let handler =
        Handler::with_emitter(true, false, Box::new(FirstError { map: map.clone(), error: first.clone() }));
    let mut transform = TransformConfig::default();
    // What nothing in the code uses may be used by the next cell.
    transform.typescript.verbatim_module_syntax = true;
    transform.typescript.no_empty_export = true;
    let options = Options {
        module: Some(true),
        parser: TsSyntax { decorators: true, ..TsSyntax::default() },
        mode,
        transform: Some(transform),
        ..Options::default()
    };
    let made =
        swc_common::errors::HANDLER.set(&handler, || operate(&map, &handler, source.to_owned(), options));
    let first = first.lock().unwrap_or_else(PoisonError::into_inner).take();
    match (made, first) {
        (Ok(made), _) => Ok(made.code),
        (Err(_), Some(error)) => Err(error),
        (Err(error), None) => Err(SyntaxError { line: 1, column: 1, message: error.message }),
    }
}

/// Keeps the first error that swc reports.
struct FirstError {
    map: Lrc<SourceMap>,
    error: Arc<Mutex<Option<SyntaxError>>>,
}

impl Emitter for FirstError {
    fn emit(&mut self, diagnostic: &mut DiagnosticBuilder<'_>) {
        let at = diagnostic.span.primary_span().map_or(BytePos(1), |span| span.lo());
        let error = error_at(&self.map, at, diagnostic.message());
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}
