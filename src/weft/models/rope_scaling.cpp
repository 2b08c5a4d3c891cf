// What stretched angles are multiplied by, and scores and queries with them.
#include <cmath>

#include "weft/models/model_config.h"

namespace weft {
namespace {

// Peng et al., 2023, equation 22, with DeepSeek's factor.
double yarn_scale(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1; }

}  // namespace

double RopeScaling::rotation_factor(int64_t context) const {
  if (attention_factor > 0) return attention_factor;
  if (kind == Kind::yarn)
    return mscale > 0 && mscale_all > 0 ? yarn_scale(factor, mscale) / yarn_scale(factor, mscale_all)
                                        : yarn_scale(factor, 1);
  if (kind == Kind::longrope && context > original_context)
    return std::sqrt(1 + std::log(double(context) / double(original_context)) / std::log(double(original_context)));
  return 1;
}

double RopeScaling::score_factor() const {
  const double scale = kind == Kind::yarn && mscale_all > 0 ? yarn_scale(factor, mscale_all) : 1;
  return scale * scale;
}

double RopeScaling::query_factor(int64_t position) const {
  return query_beta > 0 ? 1 + query_beta * std::log1p(double(position / original_context)) : 1;
}

float ModelConfig::score_scale(int64_t layer) const {
  const float scale = attention_scale > 0 ? attention_scale : 1 / std::sqrt(float(head_dim_of(layer)));
  return rope_scaling.score_factor() == 1 ? scale : float(double(scale) * rope_scaling.score_factor());
}

double ModelConfig::unrotated_query_factor(int64_t at) const {
  return 1 + unrotated_query_beta * std::log1p(double((at + 1) / unrotated_query_interval));
}

}  // namespace weft
