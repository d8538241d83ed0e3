//! Interfaces of the contract that this version of the host can not grant: each function answers `denied`.

use super::Capabilities;
use crate::bindings::host::{attachments, http_client, kv, process, secrets};

impl Capabilities {
    fn refusal(&self, kind: &str) -> String {
        format!(
            "`{kind}` is not granted to plugin `{}`: this version of the host can not grant it",
            self.plugin
        )
    }
}

impl kv::Host for Capabilities {
    fn get(&mut self, _: kv::Scope, _: String) -> Result<Option<Vec<u8>>, kv::KvError> {
        Err(kv::KvError::Denied(self.refusal("kv")))
    }
    fn set(&mut self, _: kv::Scope, _: String, _: Vec<u8>, _: Option<u32>) -> Result<(), kv::KvError> {
        Err(kv::KvError::Denied(self.refusal("kv")))
    }
    fn remove(&mut self, _: kv::Scope, _: String) -> Result<(), kv::KvError> {
        Err(kv::KvError::Denied(self.refusal("kv")))
    }
    fn keys(
        &mut self,
        _: kv::Scope,
        _: String,
        _: Option<String>,
        _: u32,
    ) -> Result<Vec<String>, kv::KvError> {
        Err(kv::KvError::Denied(self.refusal("kv")))
    }
    fn increment(&mut self, _: kv::Scope, _: String, _: i64) -> Result<i64, kv::KvError> {
        Err(kv::KvError::Denied(self.refusal("kv")))
    }
    fn replace(
        &mut self,
        _: kv::Scope,
        _: String,
        _: Option<Vec<u8>>,
        _: Vec<u8>,
    ) -> Result<bool, kv::KvError> {
        Err(kv::KvError::Denied(self.refusal("kv")))
    }
}

impl secrets::Host for Capabilities {
    fn get(&mut self, _: String) -> Result<secrets::Secret, secrets::SecretError> {
        Err(secrets::SecretError::Denied(self.refusal("secret")))
    }
}

impl http_client::Host for Capabilities {
    fn fetch(
        &mut self,
        _: http_client::HttpRequest,
    ) -> Result<http_client::HttpResponse, http_client::HttpError> {
        Err(http_client::HttpError::Denied(self.refusal("net")))
    }
}

impl process::Host for Capabilities {
    fn run(&mut self, _: process::Command) -> Result<process::Completed, process::ProcessError> {
        Err(process::ProcessError::Denied(self.refusal("process")))
    }
}

impl attachments::Host for Capabilities {
    fn all(&mut self) -> Vec<attachments::Attachment> {
        Vec::new()
    }
    fn read(&mut self, _: String) -> Result<Vec<u8>, attachments::AttachmentError> {
        Err(attachments::AttachmentError::Denied(self.refusal("attachments")))
    }
    fn create(
        &mut self,
        _: String,
        _: String,
        _: Vec<u8>,
    ) -> Result<attachments::Attachment, attachments::AttachmentError> {
        Err(attachments::AttachmentError::Denied(self.refusal("attachments")))
    }
}
