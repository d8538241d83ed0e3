//! Constraints on a value beyond its type: `range`, `length` and `regex`.

use quote::quote;
use syn::ext::IdentExt;
use syn::parse::ParseStream;
use syn::{
    Expr, ExprLit, ExprUnary, GenericArgument, Ident, Lit, LitStr, PathArguments, Result, Token, Type, UnOp,
};

/// The constraints of an argument or field.
#[derive(Debug, Default)]
pub struct LimitsAttribute {
    /// The minimum of a number.
    pub minimum: Option<Expr>,
    /// The maximum of a number.
    pub maximum: Option<Expr>,
    /// The minimum number of characters or elements.
    pub min_length: Option<Expr>,
    /// The maximum number of characters or elements.
    pub max_length: Option<Expr>,
    /// The regular expression.
    pub pattern: Option<LitStr>,
}

impl LimitsAttribute {
    /// Parses the value of `key` if it is a constraint. Returns whether it was.
    ///
    /// # Errors
    /// The value is not one of the constraint.
    pub fn parse(&mut self, key: &Ident, input: ParseStream<'_>) -> Result<bool> {
        let key = key.to_string();
        if !matches!(key.as_str(), "range" | "length" | "regex") {
            return Ok(false);
        }
        let inner;
        syn::parenthesized!(inner in input);
        match key.as_str() {
            "range" => bounds(&inner, &mut self.minimum, &mut self.maximum)?,
            "length" => bounds(&inner, &mut self.min_length, &mut self.max_length)?,
            _ => self.pattern = Some(pattern(&inner)?),
        }
        Ok(true)
    }

    /// Rejects constraints that do not fit the type, judged by its name.
    ///
    /// # Errors
    /// The constraint that does not fit.
    pub fn check_type(&self, ty: &Type) -> Result<()> {
        let Some(name) = last_name(ty) else { return Ok(()) };
        let is_text = matches!(name.as_str(), "String" | "PathBuf" | "char");
        let is_number = matches!(name.as_str(), "f32" | "f64" | "usize" | "isize")
            || name.strip_prefix(['u', 'i']).is_some_and(|bits| matches!(bits, "8" | "16" | "32" | "64"));
        let ranged = self.minimum.as_ref().or(self.maximum.as_ref());
        let measured = self.min_length.as_ref().or(self.max_length.as_ref());
        match (ranged, measured, &self.pattern) {
            (Some(at), ..) if is_text || name == "bool" || name == "Vec" => Err(syn::Error::new_spanned(
                at,
                format!(
                    "`range` is for numbers, and this is `{name}`: the length of texts and lists is `length(…)`"
                ),
            )),
            (_, Some(at), _) if is_number || name == "bool" => Err(syn::Error::new_spanned(
                at,
                format!("`length` is for texts and lists, and this is `{name}`: numbers have `range(…)`"),
            )),
            (.., Some(at)) if is_number || name == "bool" || name == "Vec" => {
                Err(syn::Error::new(at.span(), format!("`regex` is for texts, and this is `{name}`")))
            }
            _ => Ok(()),
        }
    }

    /// Rejects a default that violates the constraints, if both are literals.
    ///
    /// # Errors
    /// The violated constraint.
    pub fn check_default(&self, default: &Expr) -> Result<()> {
        let value = |expr: &Expr| number_json(expr)?.parse::<f64>().ok();
        let wrong = |what: String| Err(syn::Error::new_spanned(default, what));
        let shown = quote!(#default).to_string();
        let number = value(default);
        if let (Some(number), Some(least)) = (number, self.minimum.as_ref().and_then(value))
            && number < least
        {
            return wrong(format!("the default {shown} is below the least of the range, {least}"));
        }
        if let (Some(number), Some(most)) = (number, self.maximum.as_ref().and_then(value))
            && number > most
        {
            return wrong(format!("the default {shown} is above the most of the range, {most}"));
        }
        let length = text_of(default).map(|text| text.chars().count() as f64);
        if let (Some(length), Some(least)) = (length, self.min_length.as_ref().and_then(value))
            && length < least
        {
            return wrong(format!(
                "the default has {length} characters, and `length` asks for {least} at least"
            ));
        }
        if let (Some(length), Some(most)) = (length, self.max_length.as_ref().and_then(value))
            && length > most
        {
            return wrong(format!("the default has {length} characters, and `length` takes {most} at most"));
        }
        Ok(())
    }
}

/// The name of a type, or of the type inside an `Option`.
fn last_name(ty: &Type) -> Option<String> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last()?;
    match &last.arguments {
        PathArguments::AngleBracketed(inner) if last.ident == "Option" => match inner.args.first()? {
            GenericArgument::Type(inner) => last_name(inner),
            _ => None,
        },
        _ => Some(last.ident.to_string()),
    }
}

/// The default as a string, if it is a string literal.
fn text_of(default: &Expr) -> Option<String> {
    match default {
        Expr::Lit(ExprLit { lit: Lit::Str(text), .. }) => Some(text.value()),
        Expr::MethodCall(call)
            if call.args.is_empty() && (call.method == "to_owned" || call.method == "to_string") =>
        {
            text_of(&call.receiver)
        }
        _ => None,
    }
}

/// Parses `min = …, max = …` or `equal = …`.
fn bounds(input: ParseStream<'_>, least: &mut Option<Expr>, most: &mut Option<Expr>) -> Result<()> {
    while !input.is_empty() {
        let key: Ident = input.parse()?;
        input.parse::<Token![=]>()?;
        let value: Expr = input.parse()?;
        match key.to_string().as_str() {
            "min" => *least = Some(value),
            "max" => *most = Some(value),
            "equal" => (*least, *most) = (Some(value.clone()), Some(value)),
            _ => return Err(syn::Error::new(key.span(), "write `min = …`, `max = …` or `equal = …`")),
        }
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

/// Parses `"…"` or `pattern = "…"`.
fn pattern(input: ParseStream<'_>) -> Result<LitStr> {
    if input.peek(Ident::peek_any) && input.peek2(Token![=]) {
        input.call(Ident::parse_any)?;
        input.parse::<Token![=]>()?;
    }
    input.parse()
}

/// A literal number as JSON.
#[must_use]
pub fn number_json(value: &Expr) -> Option<String> {
    match value {
        Expr::Lit(ExprLit { lit: Lit::Int(number), .. }) => Some(number.base10_digits().to_owned()),
        Expr::Lit(ExprLit { lit: Lit::Float(number), .. }) => {
            serde_json::to_string(&number.base10_parse::<f64>().ok()?).ok()
        }
        Expr::Unary(ExprUnary { op: UnOp::Neg(_), expr, .. }) => Some(format!("-{}", number_json(expr)?)),
        Expr::Group(group) => number_json(&group.expr),
        _ => None,
    }
}
