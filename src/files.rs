//! Reading with a size limit, and writing atomically: a file is either the old one or the complete new one.

use crate::error::AppError;
use std::fs;
use std::io::{Read, Write};
use std::path::Path;

/// Largest input file that is read, in bytes.
pub const MAX_INPUT_BYTES: u64 = 256 << 20;

/// The text of a file.
///
/// # Errors
/// The file cannot be read, is larger than [`MAX_INPUT_BYTES`], or is not UTF-8.
pub fn read_text(path: &Path) -> Result<String, AppError> {
    let fail = |source| AppError::File { action: "read", path: path.to_owned(), source };
    let file = fs::File::open(path).map_err(fail)?;
    let mut bytes = Vec::new();
    file.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes).map_err(fail)?;
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        let limit = MAX_INPUT_BYTES >> 20;
        return Err(AppError::content(path.display().to_string(), format!("larger than {limit} MiB")));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        AppError::content(path.display().to_string(), format!("not UTF-8 text (byte {at})"))
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// Writes `text` to `path` through a temporary file beside it.
///
/// # Errors
/// The folder does not exist or cannot be written, or the disk is full; the old file then stays as it was.
pub fn write_text(path: &Path, text: &str) -> Result<(), AppError> {
    let fail = |source| AppError::File { action: "write", path: path.to_owned(), source };
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut file = tempfile::NamedTempFile::new_in(folder).map_err(fail)?;
    file.write_all(text.as_bytes()).map_err(fail)?;
    file.as_file().sync_all().map_err(fail)?;
    set_readable(file.as_file()).map_err(fail)?;
    file.persist(path).map_err(|error| fail(error.error))?;
    Ok(())
}

/// Lets everyone run a script.
///
/// # Errors
/// The file's permissions cannot be changed.
pub fn make_executable(path: &Path) -> Result<(), AppError> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let fail = |source| AppError::File { action: "write", path: path.to_owned(), source };
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).map_err(fail)?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

#[cfg(unix)]
fn set_readable(file: &fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn set_readable(_file: &fs::File) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file() -> Result<(), AppError> {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("plan.json");
        write_text(&path, "old")?;
        assert!(write_text(&folder.path().join("missing/plan.json"), "new").is_err());
        assert_eq!(read_text(&path)?, "old");
        Ok(())
    }
}
