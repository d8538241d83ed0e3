//! The plugin of the cookbook: each module is a recipe of `docs/how-to/cookbook.md`. It uses the SDK, as
//! plugins do.

mod tracker {
    use toolbay_sdk::prelude::*;
    use toolbay_sdk::{config, http, secrets};

    /// Count the open issues of a project.
    #[tool(read_only,
           optional(net = ["https://*:*", "http://*:*"], reason = "asks the tracker, wherever it is"),
           secret = "TRACKER_TOKEN", reason = "signs in to the tracker")]
    pub fn open_issues(
        /// Name of the project.
        project: String,
    ) -> Result<String> {
        let tracker: String = config::require("tracker")?;
        let token = secrets::get("TRACKER_TOKEN")?.text;
        let answer = http::get(format!("{tracker}/projects/{project}"))
            .header("authorization", format!("Bearer {token}"))
            .send()?
            .ok()?;
        Ok(answer.text())
    }
}

mod list {
    use toolbay_sdk::kv::{self, Scope};
    use toolbay_sdk::prelude::*;

    /// Put something on the shopping list.
    #[tool(additive, closed_world, kv = "plugin", reason = "keeps the list")]
    pub fn add_item(
        /// What to buy.
        item: String,
    ) -> Result<String> {
        for _ in 0..8 {
            let before = kv::get(Scope::Plugin, "items")?;
            let mut items = String::from_utf8_lossy(before.as_deref().unwrap_or_default()).into_owned();
            items.push_str(&item);
            items.push('\n');
            // Another call may have written in between: then nothing is written, and it is read anew.
            if kv::replace(Scope::Plugin, "items", before.as_deref(), &items)? {
                return Ok(items);
            }
        }
        Err(Error::failed("the list is written all the time: try again later"))
    }
}

mod edit {
    use toolbay_sdk::files;
    use toolbay_sdk::prelude::*;

    /// Replace a text that occurs once in a file.
    #[tool(
        closed_world,
        fs_read = "**",
        reason = "reads the file you name",
        fs_write = "**",
        reason = "writes it"
    )]
    pub fn replace_once(
        /// Path of the file.
        path: String,
        /// What stands there now.
        old: String,
        /// What shall stand there.
        new: String,
        /// The version of the file that you mean, as this tool returned it.
        version: Option<String>,
    ) -> Result<String> {
        let file = files::read(&path)?;
        let text = String::from_utf8(file.data).map_err(|_| files::not_text(&path))?;
        if text.matches(&old).count() != 1 {
            return Err(Error::failed(format!("`{old}` does not occur exactly once in `{path}`")));
        }
        // Without a version of the caller's, the one that was just read: nothing is overwritten that was not seen.
        let version = version.unwrap_or(file.stat.version);
        let written = files::write(&path, text.replacen(&old, &new, 1), Some(&version))?;
        Ok(format!("`{path}` is now at version {}", written.version))
    }
}

mod sorting {
    use toolbay_sdk::prelude::*;
    use toolbay_sdk::process::Command;

    /// Sort the lines of a file and drop what stands there twice.
    #[tool(
        read_only,
        closed_world,
        untrusted_output,
        process = "sort -u -- *",
        reason = "runs `sort`",
        fs_read = "**",
        reason = "`sort` reads the file you name"
    )]
    pub fn sorted_lines(
        /// Path of the file, below the workspace.
        path: String,
    ) -> Result<String> {
        let done = Command::new("sort").args(["-u", "--", path.as_str()]).timeout_ms(5_000).run()?;
        if !done.success() {
            return Err(Error::failed(done.stderr_text()));
        }
        Ok(done.stdout_text())
    }
}

mod chart {
    use toolbay_sdk::prelude::*;

    /// Draw numbers as bars.
    #[tool(read_only, idempotent, closed_world)]
    pub fn bar_chart(
        /// The numbers.
        #[arg(length(min = 1, max = 100))]
        values: Vec<u32>,
    ) -> Result<Output> {
        let highest = values.iter().copied().max().unwrap_or(0);
        let bars: String = values
            .iter()
            .enumerate()
            .map(|(at, value)| format!("<rect x='{}' width='8' height='{value}'/>", at * 10))
            .collect();
        let svg = format!("<svg xmlns='http://www.w3.org/2000/svg' height='{highest}'>{bars}</svg>");
        Output::new(format!("{} bars, the highest is {highest}", values.len()))
            .image(svg.into_bytes(), "image/svg+xml")
            .structured(&json!({"count": values.len(), "highest": highest}))
    }
}

mod checks {
    use toolbay_sdk::prelude::*;

    /// Run checks, and tell of each.
    #[tool(read_only, idempotent, closed_world)]
    pub fn run_checks(
        /// How many.
        #[arg(default = 100, range(min = 1, max = 1000))]
        count: u32,
    ) -> String {
        let line = |n| if n % 40 == 0 { format!("check {n}: FAILED") } else { format!("check {n}: ok") };
        (1..=count).map(line).collect::<Vec<_>>().join("\n")
    }

    /// Keeps the checks that failed and counts the others.
    #[reducer("run_checks")]
    pub fn failures(input: &ToolResult, _ctx: &ReduceContext) -> Option<ToolResult> {
        let output = input.as_ref().ok()?;
        let (ok, rest): (Vec<&str>, Vec<&str>) =
            output.value.lines().partition(|line| line.ends_with(": ok"));
        if ok.is_empty() {
            return None;
        }
        let value = format!("{}\n[{} checks passed]", rest.join("\n"), ok.len());
        Some(Ok(Output { value, ..output.clone() }))
    }
}

mod long {
    use toolbay_sdk::context;
    use toolbay_sdk::prelude::*;

    /// Find the length of the longest Collatz sequence that starts below a number.
    #[tool(read_only, idempotent, closed_world, timeout_ms = 20_000)]
    pub fn longest_sequence(
        /// Where to stop.
        #[arg(range(min = 1, max = 100_000_000))]
        below: u64,
    ) -> Result<String> {
        let mut longest = (0, 0);
        for start in 1..below {
            if start % 10_000 == 0 {
                context::check_cancelled()?;
                context::progress("searching", start as f32 * 100.0 / below as f32);
            }
            let (mut n, mut steps) = (start, 0_u32);
            while n != 1 {
                n = if n % 2 == 0 { n / 2 } else { 3 * n + 1 };
                steps += 1;
            }
            longest = longest.max((steps, start));
        }
        Ok(format!("{} steps from {}", longest.0, longest.1))
    }
}

mod greeting {
    use toolbay_sdk::prelude::*;

    /// What the operator may set.
    #[data]
    pub struct Greeting {
        /// How people are greeted.
        #[serde(default = "hello")]
        word: String,
        /// Who is never greeted.
        #[serde(default)]
        strangers: Vec<String>,
        /// Where the tracker is, which another tool reads by its name.
        #[serde(default)]
        #[allow(dead_code, reason = "not read here")]
        tracker: Option<String>,
    }

    fn hello() -> String {
        "Hello".to_owned()
    }

    #[tools]
    impl Greeting {
        /// Greet somebody.
        #[tool(read_only, idempotent, closed_world)]
        fn greet(
            &self,
            /// Who.
            name: String,
        ) -> Result<String> {
            if self.strangers.contains(&name) {
                return Err(Error::input(format!("`{name}` is a stranger")).at("/name"));
            }
            Ok(format!("{}, {name}", self.word))
        }
    }
}

mod sending {
    use toolbay_sdk::prelude::*;

    /// Send a message to everybody.
    #[tool(additive, needs_approval)]
    pub fn announce(
        /// The message.
        text: String,
    ) -> String {
        format!("sent {} characters", text.chars().count())
    }
}

mod translation {
    use toolbay_sdk::prelude::*;

    /// Translate a text, at 30 cents a call.
    #[tool(read_only)]
    pub fn translate(
        /// The text.
        text: String,
    ) -> Output {
        Output::new(text.chars().rev().collect::<String>()).cost_usd(0.3)
    }
}

toolbay_sdk::plugin! {
    tools: [
        tracker::open_issues,
        list::add_item,
        edit::replace_once,
        sorting::sorted_lines,
        chart::bar_chart,
        checks::run_checks,
        long::longest_sequence,
        greeting::Greeting,
        sending::announce,
        translation::translate,
    ],
    reducers: [checks::failures],
}
