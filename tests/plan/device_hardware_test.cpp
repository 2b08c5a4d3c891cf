// The catalogue knows devices by the names that drivers give them.
#include "weft/plan/device_hardware.h"

#include <gtest/gtest.h>

#include "weft/base/units.h"

namespace weft::plan {
namespace {

struct DeviceCase {
  const char *device, *hardware;  // hardware: empty where none is meant
  double gib;
};
void PrintTo(const DeviceCase& c, std::ostream* out) { *out << c.device; }

class DeviceHardwareTest : public testing::TestWithParam<DeviceCase> {};
INSTANTIATE_TEST_SUITE_P(
    Devices, DeviceHardwareTest,
    testing::Values(DeviceCase{"NVIDIA H100 80GB HBM3", "h100-sxm", 79.1}, DeviceCase{"NVIDIA H200", "h200", 139.8},
                    DeviceCase{"NVIDIA A100-SXM4-40GB", "a100-40", 39.4},
                    DeviceCase{"NVIDIA A100-SXM4-80GB", "a100-80", 79.3},
                    DeviceCase{"NVIDIA GeForce RTX 4090", "rtx4090", 23.6},
                    DeviceCase{"NVIDIA GeForce RTX 4090 D", "", 23.6}, DeviceCase{"NVIDIA L40S", "l40s", 44.4},
                    DeviceCase{"NVIDIA L4", "", 22.5}, DeviceCase{"Tesla V100-SXM2-32GB", "v100-sxm", 31.7},
                    DeviceCase{"NVIDIA B200", "b200", 178.4}, DeviceCase{"NVIDIA GB200", "gb200", 184},
                    DeviceCase{"NVIDIA GH200 480GB", "", 94.5}, DeviceCase{"NVIDIA GeForce GTX 1080", "", 8}));

TEST_P(DeviceHardwareTest, IsFoundByName) {
  const auto found = hardware_of_device(GetParam().device, GetParam().gib * kGibi);
  EXPECT_EQ(found ? found->name : "", GetParam().hardware);
}

}  // namespace
}  // namespace weft::plan
