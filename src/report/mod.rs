//! Results as text and HTML.

pub mod timeline_svg;
pub mod timeline_text;
pub mod timeline_trace;
pub mod validation_html;
pub mod validation_json;
pub mod validation_kernels;
pub mod validation_text;
