# libtorch as the benchmark's peer: Debian's libtorch-dev, with the OpenMP build of OpenBLAS.
find_path(TORCH_INCLUDE torch/torch.h PATH_SUFFIXES torch/csrc/api/include REQUIRED)
find_library(TORCH_CPU torch_cpu REQUIRED)
find_library(TORCH_C10 c10 REQUIRED)
set(torch_sources bench/peer_torch.cpp bench/peer_torch_attention.cpp bench/peer_torch_models.cpp)
target_sources(heed_program PRIVATE ${torch_sources} bench/peer_commands.cpp)
# As system headers, or their warnings would be ours.
set_source_files_properties(${torch_sources} PROPERTIES
  COMPILE_OPTIONS "-isystem;${TORCH_INCLUDE}")
target_link_libraries(heed_program PRIVATE ${TORCH_CPU} ${TORCH_C10} ${CMAKE_DL_LIBS})
# The system's BLAS may be the reference one. DT_RPATH, unlike DT_RUNPATH, also holds for what
# libtorch itself loads.
target_link_options(heed_program PRIVATE
  LINKER:--disable-new-dtags,-rpath,/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp)
