// load_encoder: this rank's part of an encoder, made of what a mesh leaves of it and of stored tensors.
#pragma once
#include <memory>

#include "weft/pretrained/check_mesh.h"
#include "weft/pretrained/decoder_parts.h"
#include "weft/pretrained/encoders/encoders.h"
#include "weft/pretrained/encoders/named_params.h"

namespace weft {

template <class Model>
std::vector<Param*> params_of(Model& model) {
  std::vector<Param*> all;
  model.each_param([&](Param& p) { all.push_back(&p); });
  return all;
}

// All ranks refuse what one of them would, before any is read: a file that lacks a tensor of another stage, too.
template <class Model, class Config>
std::unique_ptr<Model> load_encoder(Context& context, const StoredTensors& stored, const EncoderNames& names,
                                    const Config& config, const Divisible& divisible, const EncoderUse& use) {
  if (use.mesh) check_mesh(use.mesh->shape(), divisible);
  Model whole(config);  // without memory for its weights
  const FoundParams found = find_params(stored, names, params_of(whole));
  auto model =
      use.mesh ? std::make_unique<Model>(config, partition_of(*use.mesh, false), Stages(use.mesh->pp(), use.dtype))
               : std::make_unique<Model>(config);
  load_params(context, stored, found, params_of(*model), use.dtype);
  return model;
}

}  // namespace weft
