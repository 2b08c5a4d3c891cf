// The main function of every test executable.
#include <gtest/gtest.h>

#include <cstdlib>

int main(int argc, char** argv) {
  // Tests start mpirun as whoever runs them, root too, and with more ranks than cores.
  for (const char* name : {"OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
                           "OMPI_MCA_rmaps_base_oversubscribe", "OMPI_MCA_mpi_yield_when_idle"}) {
    setenv(name, "1", /*overwrite=*/0);
  }
  setenv("OMPI_MCA_hwloc_base_binding_policy", "none", 0);
  testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
