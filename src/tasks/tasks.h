// Jobs over whole models: conversion, inspection, measuring the machine. Their public functions are
// in tern_tools.h; this is what they share.
#ifndef TERN_TASKS_TASKS_H
#define TERN_TASKS_TASKS_H

#include "base/dtype.h"
#include "base/status.h"
#include "tern_tools.h"

bool tern_type_to_dtype(tern_type type, tern_dtype *out); // false for AUTO

#endif
