//! A progress line on stderr for searches that last, and Ctrl-C as a wish for the best so far.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use solver::{Observer, Progress};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a search may take before it shows itself.
const QUIET: Duration = Duration::from_millis(700);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// The line.
pub struct Bar {
    started: Instant,
    line: OnceLock<ProgressBar>,
}

impl Bar {
    /// A line that is not drawn yet. From now on Ctrl-C ends the search instead of the process.
    #[must_use]
    pub fn new() -> Self {
        // A second handler in one process is refused; the first keeps working.
        let _ = ctrlc::set_handler(|| INTERRUPTED.store(true, Ordering::Relaxed));
        Self { started: Instant::now(), line: OnceLock::new() }
    }

    /// Removes the line.
    pub fn finish(&self) {
        if let Some(line) = self.line.get() {
            line.finish_and_clear();
        }
    }
}

impl Default for Bar {
    fn default() -> Self {
        Self::new()
    }
}

fn line() -> ProgressBar {
    let line = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    if let Ok(style) = ProgressStyle::with_template("{spinner} {msg}  {elapsed}") {
        line.set_style(style);
    }
    line
}

impl Observer for Bar {
    fn progress(&self, progress: Progress) {
        if self.started.elapsed() < QUIET {
            return;
        }
        let best = progress.best.map_or_else(|| "none yet".to_owned(), |best| format!("{best:.4}"));
        let message = format!(
            "{} layouts simulated, {} open, best {best}, bound {:.4}",
            progress.simulated, progress.open, progress.bound
        );
        let line = self.line.get_or_init(line);
        line.set_message(message);
        line.tick();
    }

    fn cancelled(&self) -> bool {
        INTERRUPTED.load(Ordering::Relaxed)
    }
}
