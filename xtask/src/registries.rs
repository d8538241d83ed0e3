//! `registries`: publishes and installs plugins with Debian's `docker-registry`, over TLS and with a password, beside the
//! clients `wash`, `oras` and `skopeo`, and through a second one as a mirror. Independent libraries verify the
//! signatures, of keys and of certificates.

use std::ffi::OsString;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use crate::foreign::{NodeRuntime, library_path, python_with, shell, unpacked_package};
use crate::programs::{RunningProgram, free_port, printed, retried};
use crate::{cargo, plugins, tutorials};

/// The programs of this task for Python and Node.
const SCRIPTS: &str = "tests/registries";
/// The Debian package with the registry.
const REGISTRY: &str = "docker-registry";
/// Who signs with a certificate, and who does not.
const IDENTITY: &str = "https://forge.example/acme/todo/release.yml@refs/tags/v1.0.0";
const OTHER_IDENTITY: &str = "https://forge.example/acme/todo/release.yml@refs/heads/main";
/// Who vouches for the identity.
const ISSUER: &str = "https://token.forge.example";
const USER: &str = "author";
const PASSWORD: &str = "a password";
/// The password for the registry, as bcrypt hashes it.
const PASSWORD_HASH: &str = "$2b$05$mQDSsJleb1uMG1XEAbQhZ.XBdjrx4wO3N9GKIE0Vf.HtnwVAT0bdK";
/// `USER:PASSWORD` in base64, as `docker login` saves it.
const LOGIN: &str = "YXV0aG9yOmEgcGFzc3dvcmQ=";
/// Time for the registry to start.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// What the exchanges run.
pub(crate) struct Programs {
    python: PathBuf,
    node: NodeRuntime,
    registry: PathBuf,
    skopeo: Skopeo,
}

/// Installs the registry and the clients.
pub(crate) fn install(workspace: &Path) -> Result<Programs> {
    let scripts = workspace.join(SCRIPTS);
    Ok(Programs {
        python: python_with(&wasm::target_dir(workspace).join("venv-registries"), &scripts)?,
        node: NodeRuntime::with(workspace, "npm-registries", &scripts.join("keyless"))?,
        registry: unpacked_package(workspace, REGISTRY)?.join("usr/bin").join(REGISTRY),
        skopeo: Skopeo::unpack(workspace)?,
    })
}

/// Runs all exchanges.
pub(crate) fn run(workspace: &Path) -> Result<()> {
    let scripts = workspace.join(SCRIPTS);
    let target = wasm::target_dir(workspace);
    let Programs { python, node, registry: program, skopeo } = install(workspace)?;
    let folder = target.join("registries");
    crate::folder::emptied(&folder)?;
    certify(&python, &folder)?;
    let registry = TestRegistry::start(&program, &folder, &RegistryKind::Guarded)?;
    let open = TestRegistry::start(&program, &folder, &RegistryKind::Open)?;
    let mirror = TestRegistry::start(&program, &folder, &RegistryKind::MirrorOf(&open.address))?;
    let typed = tutorials::type_registry_page(workspace, &node, &open.address)?;
    println!("the tutorial: {typed} commands match");
    let exchange = Exchange { host: cargo::host(workspace), python, node, scripts, registry };
    let component = |id: &str| plugins::folder(workspace).join(id).with_extension("wasm");
    exchange.publish(&component("hash"))?;
    exchange.install(&component("text"))?;
    exchange.keyless(&component("todo"))?;
    exchange.copy(&skopeo)?;
    exchange.mirror(&open, &mirror, &component("hash"))
}

/// Makes an authority, and a certificate of it for this machine.
fn certify(python: &Path, folder: &Path) -> Result<()> {
    let mut certificates = Command::new(python);
    certificates.args(["-m", "trustme", "--quiet", "--identities", "localhost", "--dir"]);
    shell(certificates.arg(folder))?;
    Ok(std::fs::write(folder.join("htpasswd"), format!("{USER}:{PASSWORD_HASH}\n"))?)
}

/// The program `skopeo`, which copies between registries.
pub(crate) struct Skopeo {
    program: PathBuf,
    libraries: OsString,
}

impl Skopeo {
    /// Takes it from Debian, with the libraries that a small system does not have.
    pub(crate) fn unpack(workspace: &Path) -> Result<Self> {
        let program = unpacked_package(workspace, "skopeo")?.join("usr/bin/skopeo");
        Ok(Self { program, libraries: library_path(workspace, &["libgpgme11", "libassuan0"])? })
    }

    /// A command that copies an image.
    pub(crate) fn copy(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("LD_LIBRARY_PATH", &self.libraries).args(["--insecure-policy", "copy"]);
        command
    }
}

/// The purpose of a registry.
enum RegistryKind<'a> {
    /// A registry with TLS and a password.
    Guarded,
    /// A registry with TLS, and the content of an open one.
    MirrorOf(&'a str),
    /// A registry with neither TLS nor a password.
    Open,
}

/// A running registry.
struct TestRegistry {
    _program: RunningProgram,
    address: String,
    folder: PathBuf,
}

impl TestRegistry {
    fn start(program: &Path, folder: &Path, kind: &RegistryKind<'_>) -> Result<Self> {
        let port = free_port()?;
        let at = folder.display();
        let tls = format!(", tls: {{certificate: \"{at}/server.pem\", key: \"{at}/server.key\"}}");
        let (name, tls, more) = match kind {
            RegistryKind::Open => ("open", String::new(), String::new()),
            RegistryKind::Guarded => {
                ("data", tls, format!("auth: {{htpasswd: {{realm: test, path: \"{at}/htpasswd\"}}}}"))
            }
            RegistryKind::MirrorOf(other) => {
                ("mirror", tls, format!("proxy: {{remoteurl: \"http://{other}\"}}"))
            }
        };
        let settings = format!(
            "version: 0.1\nlog: {{level: error, accesslog: {{disabled: true}}}}\n\
             storage: {{filesystem: {{rootdirectory: \"{at}/{name}\"}}}}\n\
             http: {{addr: \"127.0.0.1:{port}\"{tls}}}\n\
             {more}\n"
        );
        let file = folder.join(name).with_extension("yml");
        std::fs::write(&file, settings)?;
        let mut serve = Command::new(program);
        serve.arg("serve").arg(&file);
        let log_file = file.with_extension("log");
        let log = std::fs::File::create(&log_file)?;
        let program = RunningProgram::start(serve.stdout(log.try_clone()?).stderr(log))?;
        retried(START_TIMEOUT, || Ok(TcpStream::connect(("127.0.0.1", port))?))
            .with_context(|| format!("the registry does not listen: see `{}`", log_file.display()))?;
        Ok(Self { _program: program, address: format!("localhost:{port}"), folder: folder.to_path_buf() })
    }
}

/// An author and an operator, each with a folder.
struct Exchange {
    host: PathBuf,
    python: PathBuf,
    node: NodeRuntime,
    scripts: PathBuf,
    registry: TestRegistry,
}

impl Exchange {
    /// What this project publishes, others can pull.
    fn publish(&self, component: &Path) -> Result<()> {
        let folder = &self.registry.folder;
        let login = format!("{{\"auths\": {{\"{}\": {{\"auth\": \"{LOGIN}\"}}}}}}", self.registry.address);
        std::fs::create_dir_all(folder.join("home/.docker"))?;
        std::fs::write(folder.join("home/.docker/config.json"), login)?;
        let policy = format!(
            "version = 1\n[registry.\"{0}\"]\nca = \"client.pem\"\n\
             [[trust]]\nscope = \"{0}/acme/\"\nkeys = [\"acme.pub\"]\n",
            self.registry.address
        );
        std::fs::write(folder.join("toolbay.toml"), policy)?;
        self.toolbay(&["key", "new", "acme.key"])?;
        let reference = format!("{}/acme/hash:1.0.0", self.registry.address);
        let file = component.to_str().context("the path is not UTF-8")?;
        self.toolbay(&["push", &reference, file, "--sign", "acme.key"])?;
        let wanted = std::fs::read(component)?;
        let pulled = folder.join("wash.wasm");
        self.wash(&["pull", &reference], &pulled)?;
        check_equal("wash", &pulled, &wanted)?;
        let mut oras = Command::new(&self.python);
        oras.arg(self.scripts.join("pull.py")).args([&self.registry.address, "acme/hash:1.0.0"]);
        oras.arg(folder.join("oras")).env("REQUESTS_CA_BUNDLE", folder.join("client.pem"));
        shell(&mut oras)?;
        check_equal("oras", &folder.join("oras/hash.wasm"), &wanted)
    }

    /// What others publish, and what this project signed, can be installed.
    fn install(&self, component: &Path) -> Result<()> {
        let address = &self.registry.address;
        let others = format!("{address}/other/text:2.0.0");
        self.wash(&["push", &others], component)?;
        self.toolbay(&["add", &others, "--unsigned"])?;
        let counted = self.toolbay(&["call", "text__word_count", r#"{"text": "a b a"}"#])?;
        ensure!(counted.contains('3'), "the component that `wash` pushed answers {counted}");
        self.toolbay(&["add", &format!("{address}/acme/hash:1.0.0")])?;
        self.toolbay(&["verify"])?;
        self.toolbay(&["outdated"])?;
        let verified = self.toolbay(&["verify", "--offline", "--json"])?;
        let rows: Value = serde_json::from_str(&verified)?;
        let text =
            |pointer: &str| rows.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (bundle, manifest) = (text("/0/locked/bundle"), text("/0/locked/manifest"));
        let blobs = self.registry.folder.join("home/.local/share/toolbay/store/blobs/sha256");
        let mut verify = Command::new(&self.python);
        verify.arg(self.scripts.join("verify.py")).arg(self.registry.folder.join("acme.pub"));
        shell(verify.arg(blobs.join(bundle.trim_start_matches("sha256:"))).arg(manifest))
    }

    /// A signature with a certificate is accepted by this project and by the libraries of sigstore, and for another
    /// identity by none of them.
    fn keyless(&self, component: &Path) -> Result<()> {
        let folder = self.registry.folder.join("keyless");
        std::fs::create_dir_all(&folder)?;
        let reference = format!("{}/forge/todo:1.0.0", self.registry.address);
        let digest = self.publish_keyless(&reference, component, IDENTITY)?;
        for (identity, is_good) in [(IDENTITY, true), (OTHER_IDENTITY, false)] {
            let node = self.node.run_own(&self.scripts.join("keyless/verify.mjs"))?;
            let mut python = Command::new(&self.python);
            python.arg(self.scripts.join("verify_keyless.py"));
            for mut library in [node, python] {
                library.arg(&folder).args([digest.as_str(), identity, ISSUER]);
                let output = library.output().with_context(|| format!("{library:?}"))?;
                if output.status.success() != is_good {
                    bail!("{library:?}: {}{}", output.status, String::from_utf8_lossy(&output.stderr));
                }
            }
            self.trust_identity(identity)?;
            match (self.toolbay(&["add", &reference, "--dry-run"]), is_good) {
                (Ok(_), true) | (Err(_), false) => {}
                (Ok(said), false) => bail!("`add` accepts the identity {OTHER_IDENTITY}:\n{said}"),
                (Err(error), true) => return Err(error),
            }
        }
        self.trust_identity(IDENTITY)?;
        let added = self.toolbay(&["add", &reference, "--json"])?;
        let signer = format!("keyless:{ISSUER}|{IDENTITY}");
        ensure!(added.contains(&signer), "`add` names another signer:\n{added}");
        self.toolbay(&["verify", "--offline"])?;
        // The next release has another identity, which the rule covers.
        self.trust_identity(&IDENTITY.replace("v1.0.0", "*"))?;
        let next = folder.join("todo-next.wasm");
        std::fs::copy(component, &next)?;
        let reference = reference.replace("1.0.0", "1.1.0");
        self.publish_keyless(&reference, &next, &IDENTITY.replace("v1.0.0", "v1.1.0"))?;
        let updated = self.toolbay(&["update", "todo", "--json"])?;
        ensure!(updated.contains("\"updated\""), "the next release was not taken: {updated}");
        self.toolbay(&["verify", "--offline"]).map(drop)
    }

    /// Publishes a component with a certificate's signature, and returns the digest of its manifest.
    fn publish_keyless(&self, reference: &str, component: &Path, identity: &str) -> Result<String> {
        let file = component.to_str().context("the path is not UTF-8")?;
        let pushed: Value = serde_json::from_str(&self.toolbay(&["push", reference, file, "--json"])?)?;
        let digest = pushed.get("manifest").and_then(Value::as_str).context("`push` names no manifest")?;
        let mut sign = self.node.run_own(&self.scripts.join("keyless/sign.mjs"))?;
        shell(sign.arg(self.registry.folder.join("keyless")).args([digest, identity, ISSUER]))?;
        self.toolbay(&["push", reference, file, "--bundle", "keyless/bundle.json"])?;
        Ok(digest.to_owned())
    }

    /// Lets the policy trust an identity for `forge/`, in place of an earlier one.
    fn trust_identity(&self, identity: &str) -> Result<()> {
        let file = self.registry.folder.join("toolbay.toml");
        let policy = std::fs::read_to_string(&file)?;
        let scope = format!("[[trust]]\nscope = \"{}/forge/\"\n", self.registry.address);
        let others = policy.split(&scope).next().unwrap_or_default();
        let rule = format!(
            "identity = \"{identity}\"\nissuer = \"{ISSUER}\"\nroot = \"keyless/trusted_root.json\"\n"
        );
        Ok(std::fs::write(&file, format!("{others}{scope}{rule}"))?)
    }

    /// A copy by another client keeps the digest, and is installed.
    fn copy(&self, skopeo: &Skopeo) -> Result<()> {
        let (address, folder) = (&self.registry.address, &self.registry.folder);
        let certificates = folder.join("certificates");
        std::fs::create_dir_all(&certificates)?;
        std::fs::copy(folder.join("client.pem"), certificates.join("ca.crt"))?;
        let login = format!("{USER}:{PASSWORD}");
        let mut copy = skopeo.copy();
        for side in ["src", "dest"] {
            copy.arg(format!("--{side}-cert-dir"))
                .arg(&certificates)
                .args([format!("--{side}-creds"), login.clone()]);
        }
        let place = |name: &str| format!("docker://{address}/{name}:1.0.0");
        shell(copy.args([place("acme/hash"), place("copy/hash")]))?;
        let added = |reference: &str, more: &[&str]| -> Result<Value> {
            let name = format!("{address}/{reference}:1.0.0");
            Ok(serde_json::from_str(&self.toolbay(&[&["add", &name, "--json"], more].concat())?)?)
        };
        let (original, copied) =
            (added("acme/hash", &[])?, added("copy/hash", &["--unsigned", "--as", "copied"])?);
        let manifest = |report: &Value| report.pointer("/locked/manifest").cloned();
        ensure!(
            manifest(&original) == manifest(&copied),
            "`skopeo` changed the manifest: {original} {copied}"
        );
        Ok(())
    }

    /// The mirror sends the content that a digest names.
    fn mirror(&self, open: &TestRegistry, mirror: &TestRegistry, component: &Path) -> Result<()> {
        let folder = &self.registry.folder;
        let file = folder.join("toolbay.toml");
        let policy = std::fs::read_to_string(&file)?;
        let (open, there) = (&open.address, &mirror.address);
        let sections = format!(
            "[registry.\"{open}\"]\nplain_http = true\nmirror = \"{there}\"\n\
             [registry.\"{there}\"]\nca = \"client.pem\"\n"
        );
        std::fs::write(&file, format!("{policy}{sections}"))?;
        let reference = format!("{open}/mirrored/hash:1.0.0");
        self.toolbay(&["push", &reference, component.to_str().context("the path is not UTF-8")?])?;
        // The store has the component already, from another registry.
        std::fs::remove_dir_all(folder.join("home/.local/share/toolbay/store"))?;
        self.toolbay(&["add", &reference, "--unsigned", "--as", "mirrored"])?;
        ensure!(folder.join("mirror/docker/registry/v2/blobs").exists(), "the mirror was not asked");
        self.toolbay(&["fetch"])?;
        self.toolbay(&["verify"]).map(drop)
    }

    /// Runs the program as the author and the operator, and returns what it prints.
    fn toolbay(&self, args: &[&str]) -> Result<String> {
        let folder = &self.registry.folder;
        let mut command = Command::new(&self.host);
        for variable in
            ["XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "DOCKER_CONFIG", "REGISTRY_AUTH_FILE"]
        {
            command.env_remove(variable);
        }
        command
            .env("HOME", folder.join("home"))
            .env("TOOLBAY_STATE", folder.join("state"))
            .current_dir(folder);
        printed(command.arg("--config").arg(folder.join("toolbay.toml")).args(args).stderr(Stdio::inherit()))
    }

    fn wash(&self, args: &[&str], file: &Path) -> Result<()> {
        let folder = &self.registry.folder;
        let program = self.python.with_file_name("wash");
        let mut command = Command::new(program);
        command.env("SSL_CERT_FILE", folder.join("client.pem")).env("HOME", folder.join("home"));
        command.current_dir(folder).arg("oci").args(args).arg(file);
        shell(command.args(["--user", USER, "--password", PASSWORD]))
    }
}

fn check_equal(client: &str, file: &Path, wanted: &[u8]) -> Result<()> {
    ensure!(
        std::fs::read(file)? == wanted,
        "`{client}` pulled another component than the one that was pushed"
    );
    Ok(())
}
