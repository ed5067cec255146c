//! Pages: well-formed, in one file, nothing escapes its quotes, every figure in text, small whatever the size of the job.
//!
//! `make look` opens them in a browser.

mod study;

use std::path::Path;
use study::{done, folder, meshwright, write};

const VOID: [&str; 7] = ["meta", "link", "br", "hr", "img", "input", "wbr"];

/// Checks that tags are closed in order and attributes quoted, and that nothing is fetched.
fn check_page(page: &str) {
    assert!(page.starts_with("<!DOCTYPE html>"));
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.split_once('>').expect("a doctype").1;
    while let Some(start) = rest.find('<') {
        assert!(
            !rest[..start].contains('>') || matches!(open.last(), Some(&"script" | &"style")),
            "a bare >"
        );
        let raw = open.last().is_some_and(|name| ["script", "style"].contains(name));
        if raw {
            let end = format!("</{}>", open.pop().expect("open"));
            rest = rest.split_once(&end).expect("it is closed").1;
            continue;
        }
        let (tag, after) = split_tag(&rest[start + 1..]);
        rest = after;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closed out of order");
            continue;
        }
        let name = tag.split([' ', '\n', '/']).next().expect("a name");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "<{name}>");
        assert_eq!(tag.matches('"').count() % 2, 0, "<{tag}>");
        for attribute in [" src=", " onload=", " onerror=", " onclick="] {
            assert!(!outside_quotes(tag).contains(attribute), "<{tag}>");
        }
        if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?} are not closed");
    for word in ["@import", "url(", "fetch(", "XMLHttpRequest", "href=\"http"] {
        assert!(!page.contains(word), "{word}");
    }
    let shown = page.rsplit_once("<script>").expect("a script").0;
    assert!(!shown.contains("NaN") && !shown.contains(">inf<") && !shown.contains("\"inf\""));
    assert!(page.contains("prefers-color-scheme: dark") && page.contains("width=device-width"));
}

/// A tag and what follows it; `>` in quotes does not end it.
fn split_tag(text: &str) -> (&str, &str) {
    let mut quoted = false;
    let end = text.find(|c| {
        quoted ^= c == '"';
        c == '>' && !quoted
    });
    let end = end.expect("a tag ends");
    (&text[..end], &text[end + 1..])
}

fn outside_quotes(tag: &str) -> String {
    tag.split('"').step_by(2).collect()
}

fn read(folder: &Path, name: &str) -> String {
    std::fs::read_to_string(folder.join(name)).expect("a page")
}

const HOSTILE: &str = "<script>alert(\"it's\") & more</script>";

#[test]
fn a_plan_is_a_page_with_its_figures_and_hostile_names_stay_text() {
    let folder = folder();
    let model = format!(
        "name = {}\nlayers = 8\nhidden = 1024\nheads = 8\nffn = 4096\nvocab = 32000\n",
        serde_json::Value::String(HOSTILE.to_owned())
    );
    write(folder.path(), "model.toml", &model);
    let arguments =
        ["plan", "--model", "model.toml", "--cluster", "dgx-h100", "--gpus", "16", "--seq-len", "4096"];
    let more = ["--global-batch", "32", "--fix", "pp=2", "--html", "plan.html", "--format", "json"];
    let output = meshwright(&[&arguments[..], &more[..]].concat(), folder.path());
    done(&output);
    let page = read(folder.path(), "plan.html");
    check_page(&page);
    assert!(!page.contains("<script>alert") && page.contains("&lt;script&gt;alert"));
    let plan: serde_json::Value = serde_json::from_slice(&output.stdout).expect("a plan");
    for (kind, seconds) in plan["time_seconds"].as_object().expect("kinds") {
        let used = seconds.as_f64().expect("seconds") > 0.0;
        assert_eq!(page.contains(&format!("<th>{}</th>", kind.replace('_', " "))), used, "{kind}");
    }
    for rank in plan["memory"].as_array().expect("ranks") {
        let gib = rank["peak_bytes"].as_f64().expect("bytes") / f64::from(1 << 30);
        assert!(page.contains(&format!("<td>{gib:.1}</td>")), "{gib}");
    }
    for alternative in plan["alternatives"].as_array().expect("alternatives") {
        assert!(page.contains(alternative["why"].as_str().expect("words")));
    }
    for what in ["timeline", "sortable", "Ranks on nodes and links", "What faster hardware would bring"] {
        assert!(page.contains(what), "{what}");
    }
}

#[test]
fn check_simulate_and_study_are_pages() {
    let folder = folder();
    let path = folder.path();
    write(
        path,
        "<b>&args.sh",
        "--num-layers 8 --hidden-size 1024 --num-attention-heads 8 --seq-length 4096 \
        --max-position-embeddings 4096 --micro-batch-size 1 --global-batch-size 30 --tensor-model-parallel-size 3 --bf16 \
        --vocab-size 32000 --made-up-flag '<img src=x>'\n",
    );
    let arguments = ["check", "--launcher", "megatron", "--args", "<b>&args.sh", "--world-size", "16"];
    let output =
        meshwright(&[&arguments[..], &["--cluster", "dgx-h100", "--html", "check.html"]].concat(), path);
    assert_eq!(output.status.code(), Some(3), "{}", study::stderr(&output));
    let page = read(path, "check.html");
    check_page(&page);
    assert!(page.contains("&lt;b&gt;&amp;args.sh") && page.contains("Broken rules"));

    let arguments = ["simulate", "--schedule", "interleaved-1f1b", "--ranks", "4", "--chunks", "2"];
    let more = ["--microbatches", "16", "--times", "1,1,1", "--html", "simulate.html"];
    done(&meshwright(&[&arguments[..], &more[..]].concat(), path));
    let page = read(path, "simulate.html");
    check_page(&page);
    assert!(page.contains("<dt>makespan</dt>") && page.contains("class=\"timeline\""));

    let title = format!("title = {}", serde_json::Value::String(HOSTILE.to_owned()));
    write(path, "study.toml", &study::SMALL.replace("title = \"Llama-3.1-8B, small\"", &title));
    done(&meshwright(&["study", "study.toml", "--out", "out", "--html", "study.html"], path));
    let page = read(path, "study.html");
    check_page(&page);
    assert!(page.contains("&lt;script&gt;alert") && !page.contains("<script>alert"));
    assert!(page.contains("Time against money") && page.matches("<svg").count() >= 4);
}

#[test]
fn sixteen_thousand_ranks_are_a_small_page() {
    let folder = folder();
    let arguments = [
        "plan",
        "--model",
        "llama-3.1-405b",
        "--cluster",
        "dgx-h100",
        "--gpus",
        "16384",
        "--seq-len",
        "8192",
    ];
    let more = [
        "--global-batch",
        "2048",
        "--top",
        "1",
        "--fix",
        "tp=8,pp=16,cp=1,vpp=1,micro_batch_size=1",
        "--html",
        "plan.html",
    ];
    done(&meshwright(&[&arguments[..], &more[..]].concat(), folder.path()));
    let page = read(folder.path(), "plan.html");
    check_page(&page);
    assert!(page.len() < 1_000_000, "{} bytes", page.len());
    assert!(page.contains("16,384 ranks"));
}

/// A page of a plan, and the plan.
fn page_of(arguments: &str, folder: &Path) -> (String, serde_json::Value) {
    let arguments: Vec<&str> = arguments.split_whitespace().collect();
    let output = meshwright(&[&arguments[..], &["--html", "page.html", "--format", "json"]].concat(), folder);
    let page = read(folder, "page.html");
    check_page(&page);
    (page, serde_json::from_slice(&output.stdout).expect("a document"))
}

#[test]
fn what_leaves_the_gpus_is_shown_against_the_memory_of_the_hosts() {
    let folder = folder();
    let inputs = "--model llama-3.1-8b --seq-len 8192 --global-batch 64 --top 1";
    let moved =
        format!("plan {inputs} --cluster gb200-nvl72 --gpus 8 --memory-limit 22GiB --fix pp=2 --offload any");
    let (page, plan) = page_of(&moved, folder.path());
    assert!(page.contains("Memory of hosts") && page.contains("not known"), "the profile states no memory");
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let hosts = plan["placement"]["hosts"].as_array().expect("hosts").len();
    for host in 0..hosts {
        let ranks = plan["placement"]["ranks"].as_array().expect("ranks").iter();
        let ranks = ranks
            .filter(|rank| rank["host"] == host)
            .map(|rank| rank["pp"].as_u64().expect("a rank") as usize);
        let bytes = |rank: usize| plan["memory"][rank]["host_bytes"].as_f64().unwrap_or(0.0);
        assert!(page.contains(&format!("<td>{:.1}</td>", gib(ranks.map(bytes).sum()))), "host {host}");
    }
    let state = format!("plan {inputs} --cluster dgx-h100 --gpus 8 --offload optimizer");
    let (page, plan) = page_of(&state, folder.path());
    // Twelve bytes of a parameter leave the GPUs: master weights and two moments.
    let bytes = plan["parameters_total"].as_f64().expect("parameters") * 12.0;
    assert!(page.contains(&format!("<td>{:.1}</td>", gib(bytes))), "{}", gib(bytes));
    assert!(page.contains("memory of a host 1862.6 GiB") && !page.contains("A host has less memory"));
    let (page, _) = page_of(&format!("plan {inputs} --cluster dgx-h100 --gpus 8"), folder.path());
    assert!(!page.contains("Memory of hosts"));
}

#[test]
fn no_plan_is_a_page_that_says_why() {
    let folder = folder();
    let line = "plan --model llama-3.1-70b --cluster dgx-h100 --gpus 8 --seq-len 8192 --global-batch 64 --offload never";
    let (page, document) = page_of(line, folder.path());
    let why = &document["infeasible"];
    assert!(page.contains("No plan: ") && page.contains(why["reason"].as_str().expect("words")));
    let change = why["nearest"][0]["change"].as_str().expect("a change");
    assert!(page.contains(change), "{change}");
    let number = |path: &str| why.pointer(path).and_then(serde_json::Value::as_f64).expect("a number");
    let (peak, limit) = (number("/leanest/memory/peak_bytes"), number("/leanest/limit_bytes"));
    assert_eq!(peak - limit, number("/shortfall_bytes"));
    assert!(peak > limit && page.contains(&format!("{:.1} GiB", (peak - limit) / f64::from(1 << 30))));
}

#[test]
fn a_front_is_a_page_with_every_plan_of_it() {
    let folder = folder();
    let inputs = "--model llama-3.1-8b --cluster dgx-h100 --gpus 16 --seq-len 8192 --global-batch 64";
    let (page, document) = page_of(&format!("plan {inputs} --pareto memory"), folder.path());
    let points = document["pareto"].as_array().expect("plans");
    assert!(points.len() > 1 && page.contains("peak memory, GiB"));
    for point in points {
        let gib = point["peak_memory_bytes"].as_f64().expect("bytes") / f64::from(1 << 30);
        assert!(page.contains(&format!("<td>{gib:.1}</td>")), "{gib}");
    }
}

#[test]
fn hosts_of_several_kinds_say_which_they_are() {
    let folder = folder();
    let cluster = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/clusters/two-kinds.toml");
    let line =
        format!("plan --cluster {cluster} --model llama-3.1-8b --seq-len 4096 --global-batch 168 --top 1");
    let (page, plan) = page_of(&line, folder.path());
    let hosts = plan["placement"]["hosts"].as_array().expect("hosts");
    assert!(!hosts.is_empty());
    for host in hosts {
        let host = host.as_str().expect("a name");
        let kind = if host == "node2" { "A100-SXM-80GB" } else { "H100-SXM-80GB" };
        assert!(page.contains(&format!("<b>{host}, {kind}</b>")), "{host}");
    }
}
