"""Pitch of a voice by the autocorrelation of frames, then smoothed by a running median; tones by Goertzel (1958)."""

import numpy as np


def frame_pitch(frame, rate, low, high):
    frame = frame - frame.mean()
    energy = np.dot(frame, frame)
    if energy < 1e-3:
        return 0.0
    correlation = np.correlate(frame, frame, mode="full")[len(frame) - 1 :] / energy
    first, last = int(rate / high), int(rate / low)
    lag = first + np.argmax(correlation[first:last])
    if correlation[lag] < 0.4:
        return 0.0
    left, middle, right = correlation[lag - 1], correlation[lag], correlation[lag + 1]
    shift = 0.5 * (left - right) / (left - 2 * middle + right)
    return rate / (lag + shift)


def goertzel(signal, rate, frequency):
    w = 2 * np.pi * frequency / rate
    coefficient = 2 * np.cos(w)
    s1 = s2 = 0.0
    for sample in signal:
        s1, s2 = sample + coefficient * s1 - s2, s1
    return s1 * s1 + s2 * s2 - coefficient * s1 * s2


def pitch_tracking(signal, rate):
    size, hop = 256, 128
    pitches = []
    for start in range(0, len(signal) - size + 1, hop):
        pitches.append(frame_pitch(signal[start : start + size] * np.hanning(size), rate, 80.0, 500.0))
    pitches = np.array(pitches)
    smooth = pitches.copy()
    for i in range(1, len(pitches) - 1):
        smooth[i] = np.median(pitches[i - 1 : i + 2])
    voiced = smooth[smooth > 0]
    power = [goertzel(signal, rate, f) for f in (100.0, 200.0, 400.0)]
    return smooth, voiced.mean() if voiced.size else np.nan, np.array(power)


def example(rng):
    rate = 4000
    t = np.arange(1600) / rate
    tone = np.sin(2 * np.pi * (180 * t + 40 * t**2)) + 0.3 * np.sin(2 * np.pi * 400 * t)
    return tone * (t > 0.05) + rng.normal(0, 0.05, t.size), rate
