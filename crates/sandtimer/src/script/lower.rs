//! What of TypeScript is more than types: enums, namespaces, properties declared as parameters,
//! `import x = require()`. Each becomes JavaScript on its own lines; everything else stays as it
//! is.

use swc_ecma_ast::{
    Constructor, ParamOrTsParamProp, Stmt, TsEnumDecl, TsExportAssignment, TsImportEqualsDecl, TsModuleDecl,
    TsModuleName, TsModuleRef, TsParamPropParam,
};
use swc_ecma_visit::{Visit, VisitWith};
use swc_ts_fast_strip::Mode;

use super::parsed::{Edits, Parsed, typescript};
use super::swc::swc;
use super::syntax_error::SyntaxError;

/// TypeScript whose types can be blanked out.
pub(super) fn lower(source: &str) -> Result<String, SyntaxError> {
    let parsed = Parsed::read(source, typescript())?;
    let mut lowering = Lowering { source, parsed: &parsed, edits: Edits::default(), error: None };
    parsed.module.visit_with(&mut lowering);
    match lowering.error {
        Some(error) => Err(error),
        None => Ok(lowering.edits.apply(source)),
    }
}

struct Lowering<'a> {
    source: &'a str,
    parsed: &'a Parsed,
    edits: Edits,
    error: Option<SyntaxError>,
}

impl Lowering<'_> {
    fn text(&self, span: swc_common::Span) -> &str {
        &self.source[self.parsed.byte_range(span)]
    }

    /// Has swc make JavaScript of one declaration, and puts that in its place.
    fn transform(&mut self, span: swc_common::Span, text: &str, before: &str) {
        match swc(text, Mode::Transform) {
            Ok(code) => {
                // A line end in a template is part of it; everywhere else one is as good as a
                // space.
                let code = if code.contains('`') { code } else { code.replace('\n', " ") };
                let range = self.parsed.byte_range(span);
                self.edits.replace(self.source, range, &format!("{before}{}", code.trim_end()));
            }
            Err(error) => {
                let start = self.parsed.byte_range(span).start;
                let line = error.line + self.source[..start].matches('\n').count();
                self.error.get_or_insert(SyntaxError { line, ..error });
            }
        }
    }
}

impl Visit for Lowering<'_> {
    fn visit_ts_enum_decl(&mut self, found: &TsEnumDecl) {
        if found.declare {
            return;
        }
        let text = self.text(found.span);
        // Of a constant one nothing would be left, and the next cell may use it.
        let text = text[text.find("enum").unwrap_or(0)..].to_owned();
        self.transform(found.span, &text, "");
    }

    fn visit_ts_module_decl(&mut self, found: &TsModuleDecl) {
        let TsModuleName::Ident(name) = &found.id else { return };
        if found.declare || found.global || found.body.is_none() {
            return;
        }
        let (text, before) = (self.text(found.span).to_owned(), format!("var {}; ", name.sym));
        self.transform(found.span, &text, &before);
    }

    fn visit_ts_import_equals_decl(&mut self, found: &TsImportEqualsDecl) {
        let TsModuleRef::TsExternalModuleRef(module) = &found.module_ref else { return };
        if !found.is_type_only {
            let text = format!("const {} = require({});", found.id.sym, self.text(module.expr.span));
            self.edits.replace(self.source, self.parsed.byte_range(found.span), &text);
        }
    }

    fn visit_ts_export_assignment(&mut self, found: &TsExportAssignment) {
        use swc_common::Spanned;
        let start = self.parsed.byte_range(found.span).start;
        let value = self.parsed.byte_range(found.expr.span()).start;
        self.edits.replace(self.source, start..value, "module.exports = ");
        found.visit_children_with(self);
    }

    fn visit_constructor(&mut self, found: &Constructor) {
        let mut assigned = String::new();
        for parameter in &found.params {
            let ParamOrTsParamProp::TsParamProp(property) = parameter else { continue };
            let name = match &property.param {
                TsParamPropParam::Ident(name) => name,
                TsParamPropParam::Assign(with_default) => match with_default.left.as_ident() {
                    Some(name) => name,
                    None => continue,
                },
            };
            let start = self.parsed.byte_range(property.span).start;
            let end = self.parsed.byte_range(name.id.span).start;
            self.edits.blank(self.source, start..end);
            assigned.push_str(&format!(" this.{0} = {0};", name.id.sym));
        }
        if let (false, Some(body)) = (assigned.is_empty(), &found.body) {
            // Before the constructor of the class that this one extends there is no `this`.
            let after = body.stmts.iter().find(|statement| is_super(statement));
            let range = match after {
                Some(call) => {
                    use swc_common::Spanned;
                    self.parsed.byte_range(call.span()).end
                }
                None => self.parsed.byte_range(body.span).start + 1,
            };
            let separator = if after.is_some() { ";" } else { "" };
            self.edits.replace(self.source, range..range, &format!("{separator}{assigned}"));
        }
        found.visit_children_with(self);
    }
}

fn is_super(statement: &Stmt) -> bool {
    let Stmt::Expr(expression) = statement else { return false };
    expression.expr.as_call().is_some_and(|call| call.callee.is_super_())
}
