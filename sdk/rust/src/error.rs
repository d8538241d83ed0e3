//! [`Error`]: how a tool says no.
//!
//! It is not a `std::error::Error` itself, because then the conversion from every such error, which makes `?` work,
//! could not exist beside it.

use std::fmt;

use crate::types::{ErrorCode, ToolError};

/// The result of a tool.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of a tool; its message goes back to the model as it is.
///
/// The four constructors are the four classes of the contract. Any `std::error::Error` becomes
/// [`Error::failed`] through `?`.
#[derive(Clone, PartialEq)]
pub struct Error(Box<ToolError>);

impl Error {
    /// The model produced arguments the tool cannot accept; say which with [`Error::at`].
    pub fn input(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InputInvalid, message)
    }

    /// The tool cannot run here and now: a grant, a key or a program is missing, a quota is used up.
    pub fn not_available(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::NotAvailable, message)
    }

    /// The tool ran and failed.
    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ExecutionFailed, message)
    }

    /// What the call wanted to overwrite changed since it was read; name it with [`Error::at`].
    pub fn stale(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::StaleWrite, message)
    }

    fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(Box::new(ToolError { code, message: message.into(), subject: None, cost_usd: None }))
    }

    /// Sets what the error is about.
    ///
    /// That is a JSON pointer to the argument for [`Error::input`], a short machine-readable reason for
    /// [`Error::not_available`], the path or key for [`Error::stale`], a cause for [`Error::failed`].
    #[must_use]
    pub fn at(mut self, subject: impl Into<String>) -> Self {
        self.0.subject = Some(subject.into());
        self
    }

    /// Sets what the attempt cost, in US dollars.
    #[must_use]
    pub fn cost_usd(mut self, cost: f64) -> Self {
        self.0.cost_usd = Some(cost);
        self
    }

    /// Says before the text what it is about.
    pub(crate) fn context(mut self, what: &str) -> Self {
        self.0.message = format!("{what}: {}", self.0.message);
        self
    }

    /// Puts a step before the JSON pointer, if the subject is one or there is none.
    pub(crate) fn below(self, step: &str) -> Self {
        let rest = self.0.subject.as_deref().unwrap_or_default();
        let pointer = format!("/{}{rest}", step.replace('~', "~0").replace('/', "~1"));
        self.at(pointer)
    }

    /// Returns the class of the error.
    pub fn code(&self) -> ErrorCode {
        self.0.code
    }

    /// Returns the text the model reads.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Returns what the error is about, if that was said.
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

/// Takes what the host says of a call as the tool's own error.
pub(crate) fn from_record(error: ToolError) -> Error {
    // What that call cost was that call's.
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
        struct Outer(std::num::ParseIntError);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("cannot read the port")
            }
        }
        impl std::error::Error for Outer {
            fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
                Some(&self.0)
            }
        }
        let error = Error::from(Outer("x".parse::<u8>().unwrap_err()));
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
