//! `process`: every known way out of the sandbox of a program.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use integration_tests::{TestHost, in_a_process};
use serde_json::{Value, json};

use toolbay::policy::capability::protected_paths::Protection;

use super::process_fixture::{host, none_left, python, sh, with_policy, with_settings};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_the_host_leaks_into_the_program() {
    const NAME: &str = "capabilities::process_sandbox::nothing_of_the_host_leaks_into_the_program";
    if in_a_process(NAME, "export CANARY=leak LISTED=listed LD_CANARY=leak; exec 7</etc/hostname 8>/dev/null")
    {
        return;
    }
    let host = host().await;
    let said = sh(&host, "env").await;
    let lines: Vec<&str> = said["stdout"].as_str().unwrap().lines().collect();
    assert!(lines.contains(&"LISTED=listed") && lines.contains(&"FIXED=yes"), "{lines:?}");
    let own = ["LISTED", "FIXED", "PWD", "OLDPWD", "_", "SHLVL"];
    assert!(lines.iter().all(|line| own.contains(&line.split_once('=').unwrap().0)), "{lines:?}");
    // Handles that this process inherited, and those that it opened.
    let secret = fs::File::open(host.root().join("secret/key")).unwrap();
    let python = "import os\nfound = []\nfor n in range(3, 256):\n try:\n  os.fstat(n); found.append(n)\n except OSError: pass\nprint(found)";
    let said = host.ask("p__run", json!({"program": "python", "args": ["-I", "-c", python]})).await;
    assert_eq!(said["stdout"], "[]\n", "{said}");
    drop(secret);
    for n in 3..10 {
        let said = sh(&host, &format!("cat <&{n}")).await;
        assert_ne!(said["code"], 0, "handle {n}: {said}");
    }
    // A plugin sets an allowed variable.
    let ask = |env: Value| {
        host.call("p__run", json!({"args": ["-c", "echo $CHOSEN$FIXED$LD_PRELOAD"], "env": env}))
    };
    assert_eq!(integration_tests::structured(&ask(json!({"CHOSEN": "a;b"})).await)["stdout"], "a;byes\n");
    for name in ["FIXED", "LISTED", "PATH", "LD_PRELOAD", "ENV", "CHOSEN=x", ""] {
        let delivered = ask(json!({name: "x"})).await;
        let said = integration_tests::structured(&delivered);
        assert_eq!(said["error"], "denied", "{name}: {said}");
        assert!(integration_tests::hints(&delivered).contains("guest_env = ["), "{delivered:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_outside_of_the_grants_are_out_of_reach() {
    let host = host().await;
    let root = host.root();
    let secret = root.join("secret/key");
    let secret = secret.display();
    let root = root.display();
    for line in [
        "cat /etc/shadow".to_owned(),
        "cat /etc/ssh/sshd_config".to_owned(),
        "cat \"$(getent passwd \"$(id -u)\" | cut -d: -f6)\"/.profile".to_owned(),
        format!("cat {secret}"),
        "cat secret/key".to_owned(),
        "cat in/link".to_owned(),
        "cat in/folder/key".to_owned(),
        "cd secret && cat key".to_owned(),
        "cat out/../secret/key".to_owned(),
        // Write access does not include read access.
        "echo x > out/w && cat out/w".to_owned(),
        "echo x > in/new".to_owned(),
        "echo x > in/a.txt".to_owned(),
        "echo x >> in/a.txt".to_owned(),
        "rm in/a.txt".to_owned(),
        "mv in/a.txt out/a.txt".to_owned(),
        "touch new".to_owned(),
        "mkdir new".to_owned(),
        "rm secret/key".to_owned(),
        "rm -r secret".to_owned(),
        "mv secret out/secret".to_owned(),
        "mv in/deep out/deep".to_owned(),
        "ln secret/key both/hard && cat both/hard".to_owned(),
        format!("ln -s {secret} both/soft; cat both/soft"),
        format!("ln -s {root}/secret both/dir; cat both/dir/key"),
        format!("ln -s {root}/secret/new out/dangling; echo x > out/dangling"),
        "truncate -s 0 secret/key".to_owned(),
        ": > secret/key".to_owned(),
        "ls /".to_owned(),
        "ls /root".to_owned(),
        "ls /home".to_owned(),
        "ls /tmp".to_owned(),
        format!("ls {root}"),
        "ls secret".to_owned(),
        "ls /proc".to_owned(),
        "ls /sys".to_owned(),
        "cat /proc/self/environ".to_owned(),
        format!("cat /proc/{}/environ", std::process::id()),
        format!("cat /proc/{}/maps", std::process::id()),
        format!("cat /proc/{}/cwd/Cargo.toml", std::process::id()),
        "cat /proc/1/environ".to_owned(),
        "cat /proc/sys/kernel/hostname".to_owned(),
        "echo 1 > /proc/sysrq-trigger".to_owned(),
        "echo x > /dev/shm/toolbay-test".to_owned(),
        "echo x > /tmp/toolbay-test".to_owned(),
        "echo x > /usr/toolbay-test".to_owned(),
        "echo x > /dev/tty".to_owned(),
        "cat /dev/mem /dev/kmsg".to_owned(),
        "chmod 777 in/a.txt".to_owned(),
        "chmod 777 /etc/shadow".to_owned(),
        "chown 1000 in/a.txt".to_owned(),
        // Files that the tool can write are not executable.
        "cp /bin/echo out/run && chmod 755 out/run && out/run".to_owned(),
        "printf '#!/bin/sh\\necho run' > both/run; both/run".to_owned(),
        "cp /bin/echo both/run; chmod 755 both/run; rm both/run.gone; exec 9< both/run; mv both/run both/run.gone; \
         rm both/run.gone; exec /proc/self/fd/9 run".to_owned(),
        "cp /bin/echo /dev/shm/toolbay-run && /dev/shm/toolbay-run".to_owned(),
    ] {
        let said = sh(&host, &line).await;
        assert!(said["code"].as_i64().is_some_and(|code| code != 0), "{line}: {said}");
        assert!(!said.to_string().contains("canary"), "{line}: {said}");
    }
    let root = host.root();
    assert_eq!(fs::read_to_string(root.join("secret/key")).unwrap(), "canary");
    assert_eq!(fs::read_to_string(root.join("in/a.txt")).unwrap(), "hello");
    assert_eq!(fs::metadata(root.join("in/a.txt")).unwrap().permissions().mode() & 0o777, 0o644);
    assert!(!root.join("secret/new").exists() && root.join("in/deep").exists() && !root.join("new").exists());
    // Programs of a tool without files have no files.
    let none = host.ask("p__no_files", json!({"args": ["-c", "cat in/a.txt"]})).await;
    assert_ne!(none["code"], 0, "{none}");
    // The operator's additions are visible.
    let more = async |line: &str| host.ask("p__run", json!({"program": "more", "args": ["-c", line]})).await;
    assert_eq!(more("cat a.txt ../extra/b.txt; ../tools/tool").await["stdout"], "helloextraa tool\n");
    assert_eq!(more("echo x > ../extra/out/new").await["code"], 0);
    assert_ne!(more("echo x > ../extra/new").await["code"], 0);
    let modes = json!({"program": "modes", "args": ["-c", "echo x > out/m && chmod 600 out/m"]});
    assert_eq!(host.ask("p__run", modes).await["code"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_socket_leads_out() {
    let host = host().await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let udp = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_nonblocking(true).unwrap();
    let daemon = host.root().join("both/daemon");
    let unix = std::os::unix::net::UnixListener::bind(&daemon).unwrap();
    unix.set_nonblocking(true).unwrap();
    let datagrams = host.root().join("both/datagrams");
    let log = std::os::unix::net::UnixDatagram::bind(&datagrams).unwrap();
    log.set_nonblocking(true).unwrap();
    let (tcp_port, udp_port) = (listener.local_addr().unwrap().port(), udp.local_addr().unwrap().port());

    let connect = format!("exec 3<>/dev/tcp/127.0.0.1/{tcp_port} && echo connected");
    let run =
        async |program: &str| host.ask("p__run", json!({"program": program, "args": ["-c", connect]})).await;
    let said = run("bash").await;
    assert!(said["code"] != 0 && said["stdout"] == "", "{said}");
    assert!(listener.accept().is_err(), "nobody came");

    let attempts = format!(
        r#"
import socket, os, struct
def refused(what):
    try:
        what()
    except OSError:
        return
    raise SystemExit("not refused: " + what.__name__)
def tcp(): socket.create_connection(("127.0.0.1", {tcp_port}), 5)
def udp(): socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", {udp_port}))
def six(): socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
def raw(): socket.socket(socket.AF_INET, socket.SOCK_RAW, 1)
def packet(): socket.socket(17, socket.SOCK_RAW, 0)
def netlink(): socket.socket(16, socket.SOCK_RAW, 0)
def vsock(): socket.socket(40, socket.SOCK_STREAM)
def alg(): socket.socket(38, socket.SOCK_SEQPACKET)
def unix(): socket.socket(socket.AF_UNIX, socket.SOCK_STREAM).connect({daemon:?})
def abstract(): socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).bind("\0toolbay")
def pair():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    a.sendto(b"x", {datagrams:?})
def again():
    a, b = socket.socketpair()
    a.connect({daemon:?})
for what in [tcp, udp, six, raw, packet, netlink, vsock, alg, unix, abstract, pair, again]:
    refused(what)
a, b = socket.socketpair()
a.sendall(b"fine")
print(b.recv(4).decode())
"#,
        daemon = daemon.display().to_string(),
        datagrams = datagrams.display().to_string(),
    );
    assert_eq!(python(&host, "python", &attempts).await["stdout"], "fine\n");
    let mut buffer = [0; 8];
    assert!(listener.accept().is_err() && udp.recv(&mut buffer).is_err());
    assert!(
        unix.accept().is_err() && log.recv(&mut buffer).is_err(),
        "no daemon of this machine was reached"
    );

    // With network: sockets of the Internet, but no daemon of this machine.
    assert_eq!(run("netbash").await["stdout"], "connected\n");
    assert!(listener.accept().is_ok());
    let rest = attempts.replace("[tcp, udp, six, ", "[");
    python(&host, "netpython", &rest).await;
    assert!(unix.accept().is_err() && log.recv(&mut buffer).is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn other_processes_are_out_of_reach() {
    let host = host().await;
    let mut victim = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
    let (me, other) = (std::process::id(), victim.id());
    for line in [
        format!("kill -0 {other}"),
        format!("kill -9 {other}"),
        format!("kill -CONT {me}"),
        format!("kill -9 -- -{other}"),
        "kill -CONT 1".to_owned(),
        "kill -CONT $PPID".to_owned(),
    ] {
        let said = sh(&host, &line).await;
        assert_ne!(said["code"], 0, "{line}: {said}");
    }
    let attempts = format!(
        r#"
import ctypes, fcntl, os, resource, signal, socket, struct
libc = ctypes.CDLL(None, use_errno=True)
def refused(name, result):
    if result != -1:
        raise SystemExit("not refused: " + name)
def raises(name, what):
    try:
        what()
    except (OSError, ValueError):
        return
    raise SystemExit("not refused: " + name)
for pid in ({other}, {me}, os.getppid()):
    raises("prlimit", lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (1, 1)))
    raises("affinity", lambda: os.sched_setaffinity(pid, [0]))
    raises("priority", lambda: os.setpriority(os.PRIO_PROCESS, pid, 19))
    raises("signal", lambda: os.kill(pid, signal.SIGCONT))
    raises("pidfd", lambda: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGCONT))
    refused("ptrace", libc.ptrace(16, pid, 0, 0))
    refused("process_vm_readv", libc.process_vm_readv(pid, None, 0, None, 0, 0))
    # The kernel would send a signal for each write to the pipe.
    (ours, _), (one, _) = os.pipe(), socket.socketpair()
    raises("F_SETOWN", lambda: fcntl.fcntl(ours, 8, pid))
    raises("F_SETOWN of a group", lambda: fcntl.fcntl(ours, 8, -pid))
    raises("F_SETOWN_EX", lambda: fcntl.fcntl(ours, 15, struct.pack("ii", 1, pid)))
    raises("FIOSETOWN", lambda: fcntl.ioctl(one, 0x8901, struct.pack("i", pid)))
    raises("SIOCSPGRP", lambda: fcntl.ioctl(one, 0x8902, struct.pack("i", pid)))
refused("inotify_init1", libc.inotify_init1(0))
refused("inotify_add_watch", libc.inotify_add_watch(0, b"/root", 0xfff))
raises("F_NOTIFY", lambda: fcntl.fcntl(os.open("/usr", os.O_RDONLY), 1026, 0x4))
raises("setsid", os.setsid)
raises("setpgid", lambda: os.setpgid(0, 0))
raises("setpgrp", os.setpgrp)
raises("another group", lambda: os.setpgid(0, os.getpgid({me})))
raises("chroot", lambda: os.chroot("/usr"))
raises("mknod", lambda: os.mknod({device:?}, 0o20666, os.makedev(1, 3)))
raises("open a socket of the host by a fifo", lambda: os.open("/proc/1/fd/0", os.O_RDONLY))
CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID = 0x10000000, 0x20000, 0x20000000
for flag in (CLONE_NEWUSER, CLONE_NEWNS, CLONE_NEWPID):
    refused("unshare", libc.unshare(flag))
    refused("setns", libc.setns(0, flag))
refused("mount", libc.mount(b"none", b"/usr", b"tmpfs", 0, None))
refused("umount", libc.umount2(b"/proc", 2))
refused("personality", libc.personality(0x0040000))
refused("shmget", libc.shmget(1234, 4096, 0o1600))
import platform
if platform.machine() == "x86_64":
    for name, number in [("bpf", 321), ("keyctl", 250), ("userfaultfd", 323), ("io_uring_setup", 425),
                         ("perf_event_open", 298), ("clone3", 435), ("openat by handle", 304),
                         ("pidfd_getfd", 438), ("memory of others", 440), ("a number nobody knows", 600),
                         ("x32 socket", 0x40000000 + 41), ("x32 ptrace", 0x40000000 + 521), ("kexec_load", 246),
                         ("init_module", 175), ("mq_open", 240), ("syslog", 103), ("clone into new spaces", 56)]:
        first = CLONE_NEWUSER | 17 if number == 56 else 1
        refused(name, libc.syscall(number, first, 1, 0, 0, 0, 0))
raises("hard limit", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1 << 30)))
raises("niceness", lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))
assert resource.getrlimit(resource.RLIMIT_CORE) == (0, 0)
print("held")
"#,
        device = host.root().join("out/null").display().to_string()
    );
    assert_eq!(python(&host, "python", &attempts).await["stdout"], "held\n");
    assert!(victim.try_wait().unwrap().is_none(), "it is still alive");
    victim.kill().unwrap();
    victim.wait().unwrap();
}

/// Calls that no tool needs. The kernel itself would answer them with something else than `EPERM`.
#[tokio::test(flavor = "multi_thread")]
async fn relics_of_the_kernel_are_refused() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let host = host().await;
    let attempts = r#"
import ctypes
libc = ctypes.CDLL(None, use_errno=True)
for name, number in [("modify_ldt", 154), ("memfd_secret", 447), ("vmsplice", 278), ("remap_file_pages", 216),
                     ("ustat", 136)]:
    ctypes.set_errno(0)
    libc.syscall(number, 0, 0, 0, 0, 0, 0)
    if ctypes.get_errno() != 1:
        raise SystemExit("not refused: " + name)
print("held")
"#;
    assert_eq!(python(&host, "python", attempts).await["stdout"], "held\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_another_architecture_gets_nowhere() {
    if !cfg!(target_arch = "x86_64") {
        return;
    }
    let host = host().await;
    // `int 0x80` is the entry for 32-bit programs, whose numbers mean other calls: 20 is `getpid`.
    let text = r#"
import ctypes, mmap
code = b"\xb8\x14\x00\x00\x00\xcd\x80\xc3"
m = mmap.mmap(-1, 4096, prot=7)
m.write(code)
f = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(m)))
print("got", f())
"#;
    let said = host.ask("p__run", json!({"program": "python", "args": ["-I", "-c", text]})).await;
    assert_eq!((&said["code"], &said["stdout"]), (&Value::Null, &json!("")), "killed: {said}");
}

/// Runs `test` in threads without these system calls, as on an old kernel or in a container.
fn without(calls: &[i64], test: impl AsyncFnOnce(TestHost) + Send + 'static) {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
    let rules = calls.iter().map(|call| (*call, Vec::new())).collect();
    let absent = SeccompAction::Errno(libc::ENOSYS as u32);
    let arch = std::env::consts::ARCH.try_into().unwrap();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, absent, arch).unwrap();
    let filter: BpfProgram = filter.try_into().unwrap();
    let thread = std::thread::spawn(move || {
        apply_filter(&filter).unwrap();
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(async {
            let policy = r#"
                [programs.sh]
                path = "/bin/sh"
                [programs.loose]
                path = "/bin/sh"
                sandbox = "best-effort"
                [programs.free]
                path = "/bin/sh"
                sandbox = "none"
                [programs.listed]
                path = "/bin/sh"
                read = ["$workspace/extra"]
                [plugins.p.grant]
                process = ["sh *", "loose *", "free *", "listed *"]
            "#;
            test(with_policy(policy).await).await;
        });
    });
    thread.join().unwrap();
}

#[test]
fn without_landlock_a_program_runs_only_if_the_operator_allows_it() {
    without(
        &[libc::SYS_landlock_create_ruleset, libc::SYS_landlock_add_rule, libc::SYS_landlock_restrict_self],
        async |host: TestHost| {
            let refused = sh(&host, "echo ran").await;
            assert_eq!(refused["error"], "denied", "{refused}");
            let told = host.call("p__run", json!({"args": ["-c", "echo ran"]})).await;
            let hints = integration_tests::hints(&told);
            assert!(hints.contains("[programs.sh]\nsandbox = \"best-effort\""), "{hints}");
            let loose = async |line: &str| {
                host.ask("p__run", json!({"program": "loose", "args": ["-c", line]})).await
            };
            assert_eq!(loose("echo ran").await["stdout"], "ran\n");
            let uses = format!("{:?}", host.audit.take());
            assert!(uses.contains("loose * [seccomp]") && uses.contains("sh [no sandbox]"), "{uses}");
            // What the seccomp filter alone restricts: the process group, signals and sockets.
            assert_eq!(loose("sleep 95001 & setsid sleep 95001 & echo started").await["stdout"], "started\n");
            none_left("95001");
            assert_ne!(loose(&format!("kill -0 {}", std::process::id())).await["code"], 0);
            assert_ne!(loose("kill -0 $PPID").await["code"], 0);
            assert_ne!(loose("exec python3 -I -c 'import socket; socket.socket()'").await["code"], 0);
        },
    );
}

#[test]
fn without_seccomp_a_program_runs_only_if_the_operator_allows_it() {
    without(&[libc::SYS_seccomp], async |host: TestHost| {
        let refused = sh(&host, "echo ran").await;
        assert_eq!(refused["error"], "denied", "{refused}");
        assert!(refused["message"].as_str().unwrap().contains("seccomp"), "{refused}");
        let within = async |ms: u64, line: &str| {
            host.ask("p__run", json!({"program": "loose", "args": ["-c", line], "timeout_ms": ms})).await
        };
        let loose = async |line: &str| within(20_000, line).await;
        assert_eq!(loose("echo ran; exit 9").await["code"], 9);
        assert_ne!(loose("cat /etc/shadow").await["code"], 0, "Landlock is still there");
        assert_eq!(loose("sleep 95002 & echo started").await["stdout"], "started\n");
        none_left("95002");
        assert_eq!(within(300, "sleep 95003").await["error"], "timeout");
        none_left("95003");
    });
}

/// As on macOS.
#[test]
fn without_any_sandbox_a_program_runs_only_if_the_operator_switches_it_off() {
    let calls = [
        libc::SYS_landlock_create_ruleset,
        libc::SYS_landlock_add_rule,
        libc::SYS_landlock_restrict_self,
        libc::SYS_seccomp,
    ];
    without(&calls, async |host: TestHost| {
        for program in ["sh", "loose", "listed"] {
            let run = json!({"program": program, "args": ["-c", "echo ran"]});
            let told = host.call("p__run", run).await;
            assert_eq!(integration_tests::structured(&told)["error"], "denied", "{told:?}");
            let hints = integration_tests::hints(&told);
            assert!(hints.contains(&format!("[programs.{program}]\nsandbox = \"none\"")), "{hints}");
            assert!(hints.contains("Remove `read`"), "the policy refuses the list with `none`: {hints}");
        }
        let free =
            async |line: &str| host.ask("p__run", json!({"program": "free", "args": ["-c", line]})).await;
        assert_eq!(free("echo ran").await["stdout"], "ran\n");
        let uses = format!("{:?}", host.audit.take());
        assert!(uses.contains("free * [no sandbox]") && uses.contains("loose [no sandbox]"), "{uses}");
        // Its group is still ended.
        assert_eq!(free("sleep 95004 & echo started").await["stdout"], "started\n");
        none_left("95004");
    });
}

/// The path lists of a program do not open protected paths.
#[tokio::test(flavor = "multi_thread")]
async fn the_floor_holds_for_the_lists_of_a_program_too() {
    let policy = r#"
        [programs.reads]
        path = "/bin/sh"
        read = ["$workspace/extra"]
        [programs.inside]
        path = "/bin/sh"
        read = ["$workspace/extra/keys/one"]
        [programs.linked]
        path = "/bin/sh"
        read = ["$workspace/in/folder"]
        [programs.writes]
        path = "/bin/sh"
        write = ["$workspace/tools"]
        [programs.readsrc]
        path = "/bin/sh"
        read = ["$workspace/tools"]
        [programs.executes]
        path = "/bin/sh"
        execute = ["/proc"]
        [plugins.p.grant]
        process = ["reads *", "inside *", "linked *", "writes *", "readsrc *", "executes *"]
    "#;
    let built = |open: bool| {
        with_settings(policy, move |builder, root| {
            let builder = builder.protect_path(root.join("extra/keys"), Protection::ReadAndWrite);
            let builder = builder.protect_path(root.join("secret"), Protection::ReadAndWrite);
            let builder = builder.protect_path(root.join("tools/.rc"), Protection::WriteOnly);
            if open { builder.allow_protected_path(root.join("extra/keys")) } else { builder }
        })
    };
    let host = built(false).await;
    fs::create_dir_all(host.root().join("extra/keys")).unwrap();
    let run = async |host: &TestHost, program: &str| {
        host.ask("p__run", json!({"program": program, "args": ["-c", "echo ran"]})).await
    };
    for (program, place) in [
        ("reads", "extra/keys"),
        ("inside", "extra/keys"),
        ("linked", "secret"),
        ("writes", "tools/.rc"),
        ("executes", "/proc"),
    ] {
        let said = run(&host, program).await;
        assert_eq!(said["error"], "denied", "{program}: {said}");
        let told = host.call("p__run", json!({"program": program, "args": ["-c", "echo ran"]})).await;
        let hints = integration_tests::hints(&told);
        assert!(hints.contains(place) && hints.contains("--allow-protected-path"), "{program}: {hints}");
    }
    assert_eq!(run(&host, "readsrc").await["stdout"], "ran\n", "what writers alone are kept from is read");
    let host = built(true).await;
    fs::create_dir_all(host.root().join("extra/keys")).unwrap();
    assert_eq!(run(&host, "reads").await["stdout"], "ran\n");
}
