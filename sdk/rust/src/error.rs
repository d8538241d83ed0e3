//! [`Error`]: how a tool reports a failure.
//!
//! It does not implement `std::error::Error`, because that would conflict with the conversion from every such error, which
//! makes `?` work.

use std::fmt;

use crate::types::{ErrorCode, ToolError};

/// The result of a tool.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a tool. The model reads its message unchanged.
///
/// The four constructors are the four classes of the contract. Any `std::error::Error` becomes
/// [`Error::failed`] through `?`.
#[derive(Clone, PartialEq)]
pub struct Error(Box<ToolError>);

impl Error {
    /// The arguments of the model are unacceptable. Name the argument with [`Error::at`].
    pub fn input(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InputInvalid, message)
    }

    /// The tool cannot run now: a grant, a key or a program is missing, or a quota is used up.
    pub fn not_available(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotAvailable, message)
    }

    /// The tool ran and failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ExecutionFailed, message)
    }

    /// The target of a write changed since it was read. Name it with [`Error::at`].
    pub fn stale(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::StaleWrite, message)
    }

    fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(Box::new(ToolError { code, message: message.into(), subject: None, cost_usd: None }))
    }

    /// Sets the subject of the error.
    ///
    /// The subject is a JSON pointer to the argument for [`Error::input`], a short machine-readable reason for
    /// [`Error::not_available`], the path or key for [`Error::stale`], a cause for [`Error::failed`].
    #[must_use]
    pub fn at(mut self, subject: impl Into<String>) -> Self {
        self.0.subject = Some(subject.into());
        self
    }

    /// Sets the cost of the attempt, in US dollars.
    #[must_use]
    pub fn cost_usd(mut self, cost: f64) -> Self {
        self.0.cost_usd = Some(cost);
        self
    }

    /// Puts a context before the message.
    pub(crate) fn context(mut self, what: &str) -> Self {
        self.0.message = format!("{what}: {}", self.0.message);
        self
    }

    /// Prepends a step to the JSON pointer, if the subject is a pointer or missing.
    pub(crate) fn below(self, step: &str) -> Self {
        let rest = self.0.subject.as_deref().unwrap_or_default();
        let pointer = format!("/{}{rest}", step.replace('~', "~0").replace('/', "~1"));
        self.at(pointer)
    }

    /// Returns the class of the error.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// Returns the message that the model reads.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns the subject, if there is one.
    pub fn subject(&self) -> Option<&str> {
        self.0.subject.as_deref()
    }
}

impl<E: std::error::Error> From<E> for Error {
    fn from(error: E) -> Self {
        let mut message = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let text = cause.to_string();
            // Many errors already print their cause.
            if !message.contains(&text) {
                message.push_str(": ");
                message.push_str(&text);
            }
            source = cause.source();
        }
        Self::failed(message)
    }
}

/// Converts the error of a nested call to an error of the tool.
pub(crate) fn from_record(error: ToolError) -> Error {
    // The cost of the nested call belongs to that call.
    Error(Box::new(ToolError { cost_usd: None, ..error }))
}

/// Turns an [`Error`] into the record of the contract, as a reducer sees it.
pub(crate) fn into_record(error: Error) -> ToolError {
    *error.0
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.0.code, self.0.message)?;
        match &self.0.subject {
            Some(subject) => write!(f, " (at `{subject}`)"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_std_error_becomes_execution_failed_with_its_causes() {
        #[derive(Debug)]
        struct ErrorContext(std::num::ParseIntError);
        impl fmt::Display for ErrorContext {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("cannot read the port")
            }
        }
        impl std::error::Error for ErrorContext {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let error = Error::from(ErrorContext("x".parse::<u8>().unwrap_err()));
        assert_eq!(error.code(), ErrorCode::ExecutionFailed);
        assert_eq!(error.message(), "cannot read the port: invalid digit found in string");
    }

    #[test]
    fn each_constructor_has_its_code() {
        let codes = [Error::input(""), Error::not_available(""), Error::failed(""), Error::stale("")]
            .map(|error| error.code());
        use ErrorCode::*;
        assert_eq!(codes, [InputInvalid, NotAvailable, ExecutionFailed, StaleWrite]);
    }
}
