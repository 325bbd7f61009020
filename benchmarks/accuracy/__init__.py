"""The rules of `dana.rules` compared with scikit-learn's estimators: same rows, same split, same metric."""
