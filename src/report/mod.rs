//! Results as text and HTML.

pub mod validation_html;
pub mod validation_json;
pub mod validation_kernels;
pub mod validation_text;
