//! Kernel tables: what a row means, which are left out, and that a prediction of itself has no error.

#![allow(clippy::expect_used, reason = "a test stops at the first thing that is not as it should be")]

use cluster_profiles::{Bytes, catalog};
use cost_models::compute::{Format, Product, gemm_burst};
use meshwright::validate::kernels::{FileFigures, hash, validate_kernels};
use std::path::PathBuf;

/// A folder of its own, removed with the value.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, files: &[(&str, String)]) -> Self {
        let path = std::env::temp_dir().join(format!("meshwright-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        for (file, text) in files {
            std::fs::write(path.join(file), text).expect("a file");
        }
        Self(path)
    }

    fn figures(&self) -> Vec<FileFigures> {
        validate_kernels(&self.0).expect("the files are sound")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_product_that_takes_as_long_as_predicted_has_no_error() {
    let gpu = catalog::gpu("h100-sxm-80gb").expect("a GPU");
    let mut text = "gpu,dtype,m,n,k,latency_ms\n".to_owned();
    for exponent in 9..14 {
        let (m, n, k) = (1 << exponent, 4096, 3072);
        let product = Product { m: f64::from(m), n: f64::from(n), k: f64::from(k) };
        for (dtype, format) in [("bfloat16", Format::Bits16), ("fp8", Format::Bits8)] {
            let milliseconds = gemm_burst(&gpu, format, product).get() * 1e3;
            text += &format!("h100_sxm,{dtype},{m},{n},{k},{milliseconds:.17}\n");
        }
    }
    let figures = Folder::new("self", &[("gemm.csv", text)]).figures();
    assert_eq!(figures[0].figures.len(), 2);
    for group in &figures[0].figures {
        assert_eq!(group.gpu, "h100-sxm-80gb");
        assert_eq!(group.all.rows, 5);
        assert!(group.all.p90_error.expect("errors") < 1e-12, "{group:?}");
        assert!(group.held_out.rows < group.all.rows);
    }
}

#[test]
fn rows_that_mean_nothing_are_left_out_and_counted() {
    let gemm = "gpu,dtype,m,n,k,latency_ms\nh100_sxm,int3,1,1,1,1\nno_gpu,fp8,1,1,1,1\nh100_sxm,fp8,0,1,1,1\n\
                h100_sxm,fp8,1,1,1,NaN\nh100_sxm,fp8,1,1,1,-1\nh100_sxm,fp8,1,1,1,\n";
    let moe = "gpu,moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,latency_ms\n\
               h200_sxm,bfloat16,128,4096,1024,2,64,1,1,1\n";
    let files = [("gemm.csv", gemm.to_owned()), ("moe_forward.csv", moe.to_owned())];
    let figures = Folder::new("hostile", &files).figures();
    assert!(figures.iter().all(|file| file.figures.is_empty()));
    assert_eq!(figures[0].left_out.values().sum::<usize>(), 6);
    assert_eq!(figures[1].left_out.get("fewer than 64 tokens per expert"), Some(&1));
}

#[test]
fn a_collective_takes_longer_over_more_bytes() {
    let row = |elements: u64| format!("a100_sxm,1,all_gather,8,{elements},1000,half\n");
    let header = "gpu,nccl,op,num_gpus,elements,latency_ms,dtype\n";
    let bias = |elements: u64| {
        let folder = Folder::new(
            &format!("bytes-{elements}"),
            &[("collectives.csv", header.to_owned() + &row(elements))],
        );
        folder.figures()[0].figures[0].all.bias.expect("one point")
    };
    assert!(bias(1 << 10) < bias(1 << 20) && bias(1 << 20) < bias(1 << 28));
    let bytes = Bytes(2.0 * f64::from(1 << 28) * 7.0 / 8.0);
    let fastest = bytes / catalog::gpu("a100-sxm-80gb").expect("a GPU").kernels.collective.gather_bandwidth;
    assert!((bias(1 << 28) + 1.0) * 1000.0 >= fastest.get());
}

#[test]
fn a_folder_without_tables_is_an_error() {
    let empty = Folder::new("empty", &[]);
    assert!(validate_kernels(&empty.0).expect_err("no files").to_string().contains("none of the files"));
    assert!(validate_kernels(&empty.0.join("nowhere")).is_err());
    let twice = Folder::new("twice", &[("gemm.csv", "gpu,gpu\n".to_owned())]);
    assert!(validate_kernels(&twice.0).is_err());
}

#[test]
fn the_held_out_share_is_about_what_it_says() {
    let held_out = (0..10_000).filter(|n| hash(&format!("h100_sxm,fp8,{n}")) % 100 < 30).count();
    assert!((2_700..3_300).contains(&held_out), "{held_out}");
}
