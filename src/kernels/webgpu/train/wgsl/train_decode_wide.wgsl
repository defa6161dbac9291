// Rows of wide_codes.wgsl by train_decode_rows.wgsl.
