// Jobs on whole models: conversion, inspection, measuring the machine. Their public functions are
// in tern_tools.h; this header has what they share.
#ifndef TERN_TASKS_TASKS_H
#define TERN_TASKS_TASKS_H

#include "base/dtype/dtype.h"
#include "base/status.h"
#include "tern_tools.h"

// The type of most matrices; false for AUTO.
bool tern_type_to_dtype(tern_type type, tern_dtype *out);
bool tern_type_is_mixture(tern_type type); // or a form; not the type of a single tensor
bool tern_type_is_mlx(tern_type type);
// general.file_type; -1 for AUTO. For an element type: that of a file with most weights in this
// type.
int tern_type_file_type(tern_type type);
int tern_dtype_file_type(tern_dtype type);

#endif
