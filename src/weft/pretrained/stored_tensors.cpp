// StoredTensors: conversion of what lies in a mapping.
#include "weft/pretrained/stored_tensors.h"

#include <algorithm>
#include <unordered_map>

#include "weft/formats/torch_file.h"

namespace weft {
namespace {

template <class Bits, class Convert>
void read_as(const std::byte* from, int64_t stride, std::span<float> out, Convert convert) {
  for (size_t i = 0; i < out.size(); ++i) out[i] = convert(load_le<Bits>(from + i * size_t(stride) * sizeof(Bits)));
}

class SafetensorsTensors final : public StoredTensors {
 public:
  explicit SafetensorsTensors(const std::string& path) : files_(path) {
    std::vector<StoredInfo> all;
    for (const SafetensorsEntry* e : files_.entries())
      all.push_back({e->name, e->dtype_name, e->dims, safetensors_dtype(e->dtype_name)});
    set_all(std::move(all));
  }
  const std::string& path() const override { return files_.path(); }
  void read(const StoredInfo& info, int64_t first, int64_t stride, std::span<float> out) const override {
    const SafetensorsEntry& entry = files_.at(info.name);
    const DType dtype = entry.dtype();
    if (!is_float(dtype)) throw Error("{}: tensor {} holds no weights", path(), info.to_text());
    read_floats(dtype, files_.bytes(entry), first, stride, out);
  }
  std::optional<Bytes> bytes(const StoredInfo& info) const override { return files_.bytes(files_.at(info.name)); }

 private:
  SafetensorsShards files_;
};

class TorchTensors final : public StoredTensors {
 public:
  explicit TorchTensors(const std::string& path) : files_(path) {
    std::vector<StoredInfo> all;
    for (const TorchEntry* e : files_.entries()) {
      all.push_back({e->name, e->dtype_name, e->dims, safetensors_dtype(e->dtype_name)});
      if (e->is_contiguous()) continue;
      std::vector<std::byte>& copy = in_order_[e];
      copy.resize(e->size());
      files_.read(*e, copy);
    }
    set_all(std::move(all));
  }
  const std::string& path() const override { return files_.path(); }
  void read(const StoredInfo& info, int64_t first, int64_t stride, std::span<float> out) const override {
    const TorchEntry& entry = files_.at(info.name);
    const DType dtype = entry.dtype();
    if (!is_float(dtype)) throw Error("{}: tensor {} holds no weights", path(), info.to_text());
    read_floats(dtype, bytes_of(entry), first, stride, out);
  }
  std::optional<Bytes> bytes(const StoredInfo& info) const override { return bytes_of(files_.at(info.name)); }

 private:
  Bytes bytes_of(const TorchEntry& entry) const {
    const auto copy = in_order_.find(&entry);
    return copy == in_order_.end() ? files_.file_of(entry).bytes(entry) : Bytes(copy->second);
  }

  TorchShards files_;
  std::unordered_map<const TorchEntry*, std::vector<std::byte>> in_order_;  // of tensors that lie otherwise
};

class CheckpointTensors final : public StoredTensors {
 public:
  explicit CheckpointTensors(const Checkpoint& checkpoint) : checkpoint_(checkpoint) {
    std::vector<StoredInfo> all;
    for (const std::string& name : checkpoint.names(kModelGroup)) {
      const StoredTensor t = *checkpoint.find(kModelGroup, name);
      all.push_back({name, std::string(name_of(t.dtype)), {t.shape.dims().begin(), t.shape.dims().end()}, t.dtype});
    }
    set_all(std::move(all));
  }
  const std::string& path() const override { return checkpoint_.path(); }
  void read(const StoredInfo& info, int64_t first, int64_t stride, std::span<float> out) const override {
    const StoredTensor t = *checkpoint_.find(kModelGroup, info.name);
    if (!is_float(t.dtype)) throw Error("{}: tensor {} holds no weights", path(), info.to_text());
    read_floats(t.dtype, t.bytes, first, stride, out);
  }

 private:
  const Checkpoint& checkpoint_;
};

}  // namespace

void read_floats(DType dtype, Bytes bytes, int64_t first, int64_t stride, std::span<float> out) {
  const std::byte* const from = bytes.data() + size_t(first) * size_of(dtype);
  if (dtype == DType::f32 && stride == 1) {
    std::memcpy(out.data(), from, out.size_bytes());
    return;
  }
  switch (dtype) {
    case DType::f64:
      return read_as<uint64_t>(from, stride, out, [](uint64_t u) { return float(std::bit_cast<double>(u)); });
    case DType::f32: return read_as<uint32_t>(from, stride, out, [](uint32_t u) { return std::bit_cast<float>(u); });
    case DType::bf16:
      return read_as<uint16_t>(from, stride, out, [](uint16_t u) { return std::bit_cast<float>(uint32_t(u) << 16); });
    case DType::f16: return read_as<uint16_t>(from, stride, out, [](uint16_t u) { return Float16::from_bits(u); });
    default: check(false, "{} holds no weights", name_of(dtype));
  }
}

int64_t StoredInfo::numel() const {
  int64_t n = 1;
  for (const int64_t dim : dims) n *= dim;
  return n;
}

std::string StoredInfo::to_text() const { return fmt::format("{} [{}] {}", name, fmt::join(dims, ", "), dtype_name); }

const StoredInfo* StoredTensors::find(std::string_view name) const {
  const auto found =
      std::ranges::lower_bound(all_, name, {}, [](const StoredInfo& i) -> std::string_view { return i.name; });
  return found != all_.end() && found->name == name ? &*found : nullptr;
}

void StoredTensors::copy_blocks(const StoredInfo& info, int64_t, int64_t, std::span<std::byte>) const {
  check(false, "{} has no blocks that are made", info.name);
}

void StoredTensors::set_all(std::vector<StoredInfo> all) {
  all_ = std::move(all);
  std::ranges::sort(all_, {}, &StoredInfo::name);
}

std::unique_ptr<StoredTensors> open_safetensors(const std::string& path) {
  return std::make_unique<SafetensorsTensors>(path);
}

std::unique_ptr<StoredTensors> open_weights(const std::string& path) {
  if (path.ends_with(".bin") || path.ends_with(".pt")) return std::make_unique<TorchTensors>(path);
  const auto has = [&](const ShardNames& names) {
    FileSystem& fs = FileSystem::real();
    return exists(fs, join_path(path, names.single)) || exists(fs, join_path(path, names.index));
  };
  if (!has(kSafetensorsNames) && has(kTorchNames)) return std::make_unique<TorchTensors>(path);
  return open_safetensors(path);
}

std::unique_ptr<StoredTensors> stored_weights(const Checkpoint& checkpoint) {
  return std::make_unique<CheckpointTensors>(checkpoint);
}

}  // namespace weft
