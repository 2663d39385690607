# Which GPUs kernels are compiled for, unless CMAKE_CUDA_ARCHITECTURES says it: those of this machine
# or, where there are none, as on a machine that only builds, Hopper's and what runs on all others
# from Ampere on: PTX, which their driver compiles when heed first runs there. Of 9.0 it is always
# 9.0a, whose own instructions heed knows (dot_wgmma*.cu).
if(CMAKE_CUDA_ARCHITECTURES MATCHES "^all")
  message(FATAL_ERROR "CMAKE_CUDA_ARCHITECTURES is '${CMAKE_CUDA_ARCHITECTURES}'; wanted numbers, as 80-real;90a-real, "
    "or native. The preset cuda-all has every GPU that heed runs on")
endif()
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES OR CMAKE_CUDA_ARCHITECTURES STREQUAL "native")
  find_program(NVIDIA_SMI nvidia-smi)
  if(NVIDIA_SMI)
    execute_process(COMMAND ${NVIDIA_SMI} --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE found RESULT_VARIABLE failed ERROR_QUIET)
    string(REGEX MATCHALL "[0-9]+\\.[0-9]+" found "${found}")
    list(FILTER found EXCLUDE REGEX "^[1-7]\\.")  # which heed refuses
    list(REMOVE_DUPLICATES found)
  endif()
  set(CMAKE_CUDA_ARCHITECTURES 90a-real 80-virtual)
  if(found AND NOT failed)
    list(TRANSFORM found REPLACE "\\.(.+)" "\\1-real")
    set(CMAKE_CUDA_ARCHITECTURES ${found})
  endif()
endif()
list(TRANSFORM CMAKE_CUDA_ARCHITECTURES REPLACE "^90(-real)?$" "90a-real")
