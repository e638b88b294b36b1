"""The method as pure functions of arrays, numpy only; other folders may import every module."""
