#!/usr/bin/env bash
# Tests and benchmark of the GPU on a machine that has one, from a clone and without a network, within 25 minutes.
#
#   tools/on_gpu.sh [WHEELS [RESULTS [PART...]]]
#
# Parts are device, doctor, first, benchmark, every-op and tests; all of them if none is named. `first` comes first: in
# three minutes it says whether kernels, graphs and training steps give on this GPU what they give on the processor.
# WHEELS is a folder of wheels for what that machine's Python lacks (CuPy, Numba, pytest, ...); they are unpacked
# aside and nothing of the machine's own is changed. RESULTS (default: gpu-results) takes logs and figures, which are
# written as they come: a run that is cut off leaves what it found, and tests that are interrupted tell what failed by
# then. With pytest-xdist several processes share the GPU, and a test that leaves its process none ends that one only.
# PYTHON names another interpreter.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
wheels=${1:-} results=$(realpath -m "${2:-gpu-results}") python=${PYTHON:-python3} failed=0
wanted=" ${*:3} "
mkdir -p "$results"
export PYTHONPATH=$PWD PYTHONUNBUFFERED=1 FUTUREX_COMPILE=wait
unset FUTUREX_GPU
if [ -n "$wheels" ]; then
    site=$(mktemp -d)  # not among the results, of which a run that is cut off may bring back a few files only
    trap 'rm -rf "$site"' EXIT
    for wheel in "$wheels"/*.whl; do  # one by one: another's failure is no reason to do without it
        place=$site/$(basename "$wheel" .whl)  # of its own: pip would replace a folder that several packages share
        "$python" -m pip install -q --no-index --no-deps --no-compile --target "$place" "$wheel" ||
            { echo "== without $wheel"; failed=1; continue; }
        export PYTHONPATH=$PYTHONPATH:$place
        for folder in "$place"/nvidia/*; do  # libraries of CUDA are looked for among installed packages, and here
            [ -d "$folder/lib" ] && export LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
            [ -f "$folder/include/cuda_runtime.h" ] && export CUDA_PATH=${CUDA_PATH:-$folder}
        done
    done
fi

part() {  # part NAME SECONDS COMMAND...: run it, keep what it says, and go on if it fails
    local name=$1 seconds=$2
    shift 2
    [[ $wanted =~ ^" "*$ || $wanted == *" $name "* ]] || return 0
    echo "== $name (at most $seconds s)"
    timeout --foreground --signal=INT --kill-after=20 "$seconds" "$@" 2>&1 | tee "$results/$name.log"
    [ "${PIPESTATUS[0]}" = 0 ] || { echo "== $name failed"; failed=1; }
}

several=()
"$python" -c 'import xdist' 2> /dev/null && several=(-n "${PROCESSES:-8}")
tests=("$python" -m pytest -q --tb=short -p no:cacheprovider "${several[@]}")

part device 30 nvidia-smi
part doctor 90 "$python" -m futurex doctor
part first 180 "${tests[@]}" tests/gpu/test_{sweeps,capture,training_on_device}.py \
    tests/gpu/test_attention.py::test_{cudnn_computes_what_the_op_means,a_block_of_a_transformer_trains_on_a_gpu}
part benchmark 490 "$python" -m benchmarks gpu --out "$results"
part every-op 240 "${tests[@]}" tests/gpu/test_every_op.py
part tests 420 "${tests[@]}" tests/gpu tests/test_autocast.py --ignore=tests/gpu/test_every_op.py \
    --ignore=tests/gpu/test_planned.py --ignore=tests/gpu/test_compiles.py  # which are for machines without a GPU
exit "$failed"
