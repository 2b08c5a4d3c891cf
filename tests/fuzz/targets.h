// Fuzz targets: what reads bytes from outside, as functions of those bytes. libFuzzer calls one of them
// (fuzz_main.cpp), the tests call all of them on the files of corpus/. A target throws nothing and leaves nothing
// behind.
#pragma once
#include "weft/base/bytes.h"

namespace weft {

void fuzz_safetensors(Bytes input);
void fuzz_shard_index(Bytes input);
void fuzz_gguf(Bytes input);
void fuzz_torch(Bytes input);
void fuzz_blocks(Bytes input);     // quantised blocks, decoded and encoded
void fuzz_config(Bytes input);     // config.json
void fuzz_quantized(Bytes input);  // config.json and the codes of a matrix
void fuzz_tokenizer(Bytes input);  // tokenizer.json, and texts to and fro
void fuzz_import(Bytes input);     // another program's configuration: JSON, YAML or a script
void fuzz_published(Bytes input);  // a table of published runs, read and planned
void fuzz_jinja(Bytes input);      // a template, rendered
void fuzz_trace(Bytes input);      // a measured trace.json, drawn
void fuzz_form(Bytes input);       // a form of a request, compiled and followed; an answer's calls
void fuzz_message(Bytes input);    // a message between replicas

}  // namespace weft
