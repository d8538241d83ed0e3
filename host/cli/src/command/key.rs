//! `toolbay key`: the keys with which authors sign plugins.

use std::io::Write as _;
use std::path::Path;

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::json;
use toolbay_distribution::signature::key::{self, PrivateKey};

use crate::args::KeyCommand;
use crate::output::{self, CommandStatus, Printer, host_failure};
use crate::setup::SetupArgs;
use crate::setup::named_path::{check_is_new, path_failure};

/// The extension of public keys.
const PUBLIC: &str = "pub";

pub(crate) fn run(args: &SetupArgs, command: &KeyCommand) -> Result<CommandStatus> {
    match command {
        KeyCommand::New { file } => new(args.printer, file),
        KeyCommand::Show { file } => show(args.printer, file),
    }
}

fn new(printer: Printer, file: &Path) -> Result<CommandStatus> {
    let public = file.with_extension(PUBLIC);
    if public == file {
        bail!("`{}` is the name of a public key: choose another extension, such as `.key`", file.display());
    }
    for path in [file, &public] {
        check_is_new(path, "choose another name")?;
    }
    let key = PrivateKey::generate().map_err(host_failure)?;
    let unwritable = |path: &Path| format!("`{}` cannot be written", path.display());
    key.write_new(file).with_context(|| unwritable(file)).map_err(path_failure)?;
    key.public().write_new(&public).with_context(|| unwritable(&public)).map_err(path_failure)?;
    let id = key.public().id();
    if printer.is_json() {
        return Ok(output::print_json(&json!({"private": file, "public": public, "id": &*id.hex()}))?);
    }
    let (private, public) = (file.display(), public.display());
    printer.note(&format!("the private key is `{private}`; everybody who has it can sign as you"));
    printer.note(&format!("the public key is `{public}`; operators name it in `[[trust]]`"));
    writeln!(output::stdout(), "{}", id.hex())?;
    printer.help(&format!("sign with `toolbay push REF FILE --sign {private}`"));
    Ok(CommandStatus::Success)
}

fn show(printer: Printer, file: &Path) -> Result<CommandStatus> {
    let key = key::read_public(file).map_err(|why| anyhow!("`{}`: {why}", file.display()))?;
    let (id, pem) = (key.id(), key.to_pem());
    if printer.is_json() {
        output::print_json(&json!({"id": &*id.hex(), "public": pem}))?;
    } else {
        printer.note(&format!("the id of the key is {}", id.hex()));
        write!(output::stdout(), "{pem}")?;
    }
    Ok(CommandStatus::Success)
}
