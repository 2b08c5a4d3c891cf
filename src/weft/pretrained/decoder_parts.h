// decoder_parts: which layers of a model each stage of a pipeline has, so that stages take as long as each other.
#pragma once
#include <string>
#include <vector>

#include "weft/models/decoder.h"
#include "weft/parallel/mesh.h"
#include "weft/parallel/pipeline/schedule.h"

namespace weft {

// seq_len: of the sequences that it is for. layers_per_stage: as a user wrote it; empty: placed by what layers cost.
std::vector<DecoderPart> decoder_parts(const ModelConfig& config, int64_t seq_len,
                                       const std::string& layers_per_stage, const PipelineShape& shape);

// How this rank of the mesh cuts layers. The mesh outlives it.
Partition partition_of(const Mesh& mesh, bool cuts_sequence);

}  // namespace weft
